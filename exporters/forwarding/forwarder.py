"""OTLP on to another backend: Tempo, Jaeger, an OpenTelemetry Collector.

What was received is sent on as it came, once it is committed here. Receiving never waits: what
has no room in the queue, or finds nobody for too long, is dropped and counted. A backend that is
away holds up what is behind, in order; it costs its queue and no more.
"""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family
from telemetry.tasks import Task

QUEUED_BYTES: Final = 64 * 2**20
PATIENCE_S: Final = 300.0
"""How old a message grows before it is given up."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0

MESSAGES: Final = Series(
    "tailspan_forward_messages_total",
    "Messages to be sent on, by what became of them: sent, refused (by the backend), full (no room"
    " in the queue), expired (not accepted for too long) or failed (a defect).",
    ("result",),
)
QUEUED: Final = Series(
    "tailspan_forward_queued_bytes", "Size of the messages that wait to be sent on, in bytes."
)
RESULTS: Final = ("sent", "refused", "full", "expired", "failed")

_log = logging.getLogger(__name__)


class Message(NamedTuple):
    """One export, as it was received."""

    path: str
    body: bytes
    json: bool
    received_s: float
    """Monotonic."""


class Answer(NamedTuple):
    """What the backend said; status None where nobody did."""

    status: int | None
    retry_after_s: float | None = None


class Post(Protocol):
    """Sends one message once. Never raises."""

    def __call__(self, path: str, body: bytes, content_type: str) -> Answer:
        """What came of it."""


class Forwarder(Families):
    """A bounded queue, and the thread that empties it.

    Args:
        post: sends one message once.
        queued_bytes: room in the queue.
        patience_s: how old a message grows before it is given up.
        clock: monotonic seconds.
        pause: waits so long, or until it is closed.
    """

    def __init__(
        self,
        post: Post,
        *,
        queued_bytes: int = QUEUED_BYTES,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._post = post
        self._room = queued_bytes
        self._patience_s = patience_s
        self._clock = clock
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)
        self.task = Task("forwarder")

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        self.task.alive = self._thread.is_alive

    def offer(self, path: str, body: bytes, json: bool) -> None:
        """Take a message; without room it is dropped. Never waits."""
        with self._lock:
            if self._closed.is_set() or self._held_bytes + len(body) > self._room:
                self._results["full"] += 1
                return
            self._held_bytes += len(body)
        self._queue.put(Message(path, body, json, self._clock()))

    def close(self, within_s: float) -> None:
        """Send what waits, as long as the backend takes it at once, and end."""
        self._queue.put(None)
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def counts(self) -> tuple[Mapping[str, int], int]:
        """Messages by result, and the bytes that wait."""
        with self._lock:
            return dict(self._results), self._held_bytes

    def families(self) -> Iterator[Family]:
        """The same as metrics."""
        results, held_bytes = self.counts()
        yield counter(MESSAGES, {(result,): count for result, count in results.items()})
        yield gauge(QUEUED, {(): held_bytes})

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                result = self._deliver(message)
                self.task.succeeded(time.time())
            except Exception as error:  # a defect: this message is lost, the next is sent
                result = "failed"
                self.task.failed(error)
                _log.exception("a message could not be sent on")
            with self._lock:
                self._held_bytes -= len(message.body)
                self._results[result] += 1

    def _deliver(self, message: Message) -> str:
        kind = "application/json" if message.json else "application/x-protobuf"
        pause_s = FIRST_PAUSE_S
        while True:
            if self._clock() - message.received_s > self._patience_s:
                return "expired"
            status, retry_after_s = self._post(message.path, message.body, kind)
            if status is not None and 200 <= status < 300:
                return "sent"
            # OTLP: these may be sent again; whatever else is said stays said.
            if status is not None and status not in (429, 502, 503, 504):
                return "refused"
            if self._closed.is_set():
                return "expired"
            self._pause(min(retry_after_s or pause_s, LONGEST_PAUSE_S))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
