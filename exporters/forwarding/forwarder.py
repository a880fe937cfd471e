"""Forward OTLP messages to a second backend, such as Tempo, Jaeger or an OpenTelemetry Collector.

The collector never waits for this backend. A message is dropped and counted if the queue is full,
or if the backend does not accept it within `PATIENCE_S`. Retries of a message delay all later
messages. The retry rules are in `tailspan_vllm.export.retry`.
"""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from tailspan_vllm.export.retry import Backoff, deliver
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict

from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family
from telemetry.tasks import Task

QUEUED_BYTES: Final = 64 * 2**20
PATIENCE_S: Final = 300.0
LONGEST_REQUESTED_PAUSE_S: Final = 30.0

MESSAGES: Final = MetricSeries(
    "tailspan_forward_messages_total",
    "Messages to forward, by result: sent, refused (by the backend), full (the queue is full),"
    " expired (not accepted in time) or failed (a defect of Tailspan).",
    ("result",),
)
QUEUED: Final = MetricSeries(
    "tailspan_forward_queued_bytes", "Size of the messages in the queue, in bytes."
)
RESULTS: Final = ("sent", "refused", "full", "expired", "failed")

_log = logging.getLogger(__name__)


class ForwardedMessage(NamedTuple):
    """One received export message, unchanged."""

    path: str
    body: bytes
    json: bool
    received_s: float
    """The monotonic time of the message's arrival."""


class MessagePoster(Protocol):
    """Sends one message once. Never raises."""

    def __call__(self, path: str, body: bytes, content_type: str) -> ExportResponse:
        """Send a message."""


class Forwarder(Families):
    """A bounded queue and the thread that sends its messages.

    Args:
        post: sends one message once.
        queued_bytes: capacity of the queue.
        patience_s: age at which a message is dropped.
        backoff: computes the pauses between attempts.
        pause: waits for some seconds, or until the forwarder is closed.
    """

    def __init__(
        self,
        post: MessagePoster,
        *,
        queued_bytes: int = QUEUED_BYTES,
        patience_s: float = PATIENCE_S,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._post = post
        self._capacity_bytes = queued_bytes
        self._patience_s = patience_s
        self._backoff = backoff or Backoff(longest_requested_s=LONGEST_REQUESTED_PAUSE_S)
        self._clock = clock
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._queue: queue.SimpleQueue[ForwardedMessage | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)
        self.task = Task("forwarder")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self.task.alive = self._thread.is_alive

    def offer(self, path: str, body: bytes, json: bool) -> None:
        """Queue a message, or drop it if the queue is full. Never waits."""
        with self._lock:
            if self._closed.is_set() or self._queued_bytes + len(body) > self._capacity_bytes:
                self._results["full"] += 1
                return
            self._queued_bytes += len(body)
        self._queue.put(ForwardedMessage(path, body, json, self._clock()))

    def close(self, within_s: float) -> None:
        """Try each queued message once more, within `within_s` seconds, then end the thread."""
        self._queue.put(None)
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def counts(self) -> tuple[Mapping[str, int], int]:
        """The counts of messages by result, and the bytes in the queue."""
        with self._lock:
            return dict(self._results), self._queued_bytes

    def families(self) -> Iterator[Family]:
        """Yield the counts as metric families."""
        results, queued_bytes = self.counts()
        yield counter(MESSAGES, {(result,): count for result, count in results.items()})
        yield gauge(QUEUED, {(): queued_bytes})

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                result = self._deliver(message)
                self.task.succeeded(time.time())
            except Exception as error:  # only this message is lost
                result = "failed"
                self.task.failed(error)
                _log.exception("a message could not be forwarded")
            with self._lock:
                self._queued_bytes -= len(message.body)
                self._results[result] += 1

    def _deliver(self, message: ForwardedMessage) -> str:
        if self._expired(message):
            return "expired"
        kind = "application/json" if message.json else "application/x-protobuf"
        outcome = deliver(
            lambda: self._post(message.path, message.body, kind),
            self._backoff,
            clock=self._clock,
            pause=self._pause,
            last_attempt=lambda: self._closed.is_set() or self._expired(message),
        )
        if outcome.verdict is ExportVerdict.ACCEPTED:
            return "sent"
        return "expired" if outcome.retryable else "refused"

    def _expired(self, message: ForwardedMessage) -> bool:
        return self._clock() - message.received_s > self._patience_s
