"""Read metrics messages whose layout (the positions of the numbers) is known.

It reads these messages in this process, because passing a message to the reader process takes
longer than reading it. The reader process reads all other messages.
"""

import logging
from typing import Final

from collector.errors import IntakeError
from collector.normalise.batch import NormalisedBatch
from collector.normalise.known_layouts import KnownLayouts
from collector.normalise.layout_learning import learn
from collector.otlp.message_reader import MessageReader
from collector.signals import METRICS, Signal

MAX_AT_ONCE_BYTES: Final = 2**17
"""Maximum size in bytes of a message that `read_known` reads. The samples of eight GPUs in 5 s have
96 kB."""
MAX_LEARNED_BYTES: Final = 2**18
MAX_LEARNED_POINTS: Final = 2_048
"""Maximum number of data points in a message from which layouts are learned. Learning them takes at
most about 50 ms."""

_log = logging.getLogger(__name__)


class LayoutReader:
    """Reads messages by their layouts. It learns the layouts from messages that another reader has
    read."""

    def __init__(self, other: MessageReader) -> None:
        self._other = other
        self._layouts = KnownLayouts()

    def read_known(self, signal: Signal, body: bytes, now_unix_ns: int) -> NormalisedBatch | None:
        """Read a small message with a known layout. Return None for other messages."""
        if signal is not METRICS or len(body) > MAX_AT_ONCE_BYTES:
            return None
        try:
            return self._layouts.read(body, now_unix_ns)
        except IntakeError:
            return None

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        """Read any message. If its layout is not known, use the other reader."""
        if signal is not METRICS or json:
            return self._other.read(signal, body, json, now_unix_ns)
        known = self._layouts.read(body, now_unix_ns)
        if known is not None:
            return known
        batch = self._other.read(signal, body, json, now_unix_ns)
        small = len(body) <= MAX_LEARNED_BYTES and batch.accepted <= MAX_LEARNED_POINTS
        if small and self._layouts.missed_before(len(body)):
            self._learn(body, now_unix_ns)
        return batch

    def close(self) -> None:
        """Stop reading."""
        self._other.close()

    def _learn(self, body: bytes, now_unix_ns: int) -> None:
        try:
            self._layouts.add(learn(body, now_unix_ns))
        except Exception:  # only the layout is lost
            _log.exception("the layout of a metrics message could not be learned")
