"""Completes captured requests and exports them over OTLP, with two threads and bounded queues.

The server's threads only append to a queue. The reading thread reads the engine cores' messages and
samples the engines each second, and completes ended requests before each export. It never uses the
network. The sending thread exports full batches, and all data every few seconds. While the
collector is unreachable, requests wait. If the queue is full, new requests are dropped and counted.
A span has the same ids in every retry, so the receiver can discard duplicates.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Literal

from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.account_join import AccountJoin
from tailspan_vllm.export.export_log import ExportLog
from tailspan_vllm.export.exporter import Exporter
from tailspan_vllm.export.in_flight_reports import BuildInFlight
from tailspan_vllm.export.pod_start import PodStart
from tailspan_vllm.export.reader import EngineCoreReader
from tailspan_vllm.export.restarting_thread import RestartingThread
from tailspan_vllm.export.span_queue import Drops, SpanAllowance, SpanQueue
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record_builder import BuildRecord
from tailspan_vllm.settings import Settings

logger = logging.getLogger("vllm.tailspan")

FLUSH_S: Final = 2.0
"""Maximum time that a stopping server waits for the last export."""

READ_S: Final = 0.2
"""Interval of reads of a busy link. Other links are read only with the samples, because a read
takes 0.2 to 0.4 ms of CPU."""

BUSY_REQUESTS: Final = 16
"""The link is busy if this many requests of this process have ended since the last read. It is also
busy if the last read returned more than twice this many messages.

An engine that becomes idle after each request sends two packets per request. The socket's buffer
holds 93 packets of 1,000 bytes. Accounts that do not fit into the buffer wait in the engine until
the next request.
"""

SAMPLE_S: Final = 1.0

LOOKS, LOOK_S = 200, 0.05
"""Number of attempts to connect to engines at their first requests, and the pause between attempts.
An engine on a different machine has no link."""

NAME_WAIT_S: Final = 120.0
"""How long the first export waits for the server's port, which is part of the replica's name. The
port is known when the server builds its application."""

REFUSED_SHARE: Final = 4
"""The limit of the queue of refused requests is the main limit divided by this number."""

UNAUTHENTICATED_PER_S, UNAUTHENTICATED_BURST = 1.0, 60
"""Limits of reported unauthenticated requests: an average per second, and a number in one burst."""

Kind = Literal["served", "refused", "unauthenticated"]


class OtlpSender:
    """`submit` is thread-safe.

    Args:
        link: the token of the engines' link; None for the token in the environment.
    """

    def __init__(self, settings: Settings, link: str | None = None) -> None:
        self._settings = settings
        self._drops = Drops()
        self._served = SpanQueue(settings.queue_limit, self._drops)
        self._refused = SpanQueue(max(1, settings.queue_limit // REFUSED_SHARE), self._drops)
        self._unauthenticated = SpanAllowance(UNAUTHENTICATED_PER_S, UNAUTHENTICATED_BURST)
        join = AccountJoin(link or os.environ.get(TOKEN_VARIABLE), settings.prefix_key)
        self._reader = EngineCoreReader(join, self._drops)
        self._reader.before = PodStart(settings, os.environ).parts
        self._reports = ExportLog(settings, logger)
        self._at_end: Callable[[], None] = lambda: None
        self._build_in_flight: BuildInFlight | None = None
        self._port: int | None = None
        self._named = threading.Event()
        """Set when the server's port is known, or when there is none."""
        self._wake = threading.Event()
        self._due = threading.Event()
        self._unread = 0
        self._closing = threading.Event()
        self._read_all = threading.Event()
        self._reading = RestartingThread("tailspan-reader", self._read, self._closing)
        self._sending = RestartingThread("tailspan-sender", self._send, self._closing)
        self._registered = False
        self._looks_left = LOOKS

    def observe(
        self,
        engines: dict[int, EngineState],
        at_end: Callable[[], None],
        in_flight: Callable[[], InFlight | None],
        build_in_flight: BuildInFlight,
    ) -> None:
        """Set the sources of engine states and of requests in flight.

        Args:
            engines: the engines to sample each second.
            at_end: called before the last export.
            in_flight: returns the requests in flight, or None if they are not captured.
        """
        self._reader.engines, self._at_end = engines, at_end
        self._reader.in_flight = in_flight
        self._build_in_flight = build_in_flight

    def leaves_out(self, is_removed: Callable[[int], bool]) -> None:
        """Set the function that returns whether the server no longer has an engine. Such an engine
        is not sampled."""
        self._reader.is_removed = is_removed

    def serves_port(self, port: int | None) -> None:
        """Set the port in this replica's name. None means no port."""
        if port is not None:
            self._port = port
        self._named.set()

    def serves(self) -> None:
        """Record that the HTTP server is ready."""
        self._reader.served = self._reader.served or time.monotonic()

    def start(self) -> None:
        """Start the threads, or restart threads that have ended."""
        self._reading.ensure()
        self._sending.ensure()
        if not self._registered:
            self._registered = True
            atexit.register(self.close)

    def submit(self, build: BuildRecord, kind: Kind = "served") -> None:
        """Queue a request that has ended, or drop and count it.

        Args:
            build: builds the record, on a thread of this class.
            kind: the kind of request, which determines the queue.
        """
        if not self._settings.enabled or not self._settings.spans:
            return
        if kind == "served":
            self._served.submit(build)
        elif kind == "refused" or self._unauthenticated.take():
            self._refused.submit(build)
        else:
            self._drops.add(1, names.UNAUTHENTICATED)
        if not self._named.is_set():
            self._named.set()
        self._unread += 1
        if self._unread == BUSY_REQUESTS:
            self._wake.set()
        if not self._reading.alive:
            self.start()

    def expect(self) -> None:
        """Try to connect soon to the engine that a request is entering."""
        if not self._named.is_set():
            self._named.set()  # a server's port is known by now; an offline program has no port
        if not self._reader.connected and self._looks_left and self._settings.enabled:
            self.start()
            self._wake.set()

    def close(self) -> None:
        """Send the remaining data within `FLUSH_S`, and stop."""
        self._finish_capture()
        until = time.monotonic() + FLUSH_S
        for event in (self._closing, self._named, self._wake, self._due):
            event.set()
        self._reading.join(FLUSH_S)
        self._sending.join(until - time.monotonic())

    @guard.catch_exceptions("at_end")
    def _finish_capture(self) -> None:
        self._at_end()

    # --- the reading thread ---------------------------------------------------------------

    def _read(self) -> None:
        tick_s = min(SAMPLE_S, self._settings.interval_s)
        batch_limit = self._settings.batch_limit
        due = exports = 0.0
        while True:
            # Read this before the data, so that the last round gets all data.
            closing = self._closing.is_set()
            self._unread = 0
            self._reader.read_link()
            now = time.monotonic()
            if closing or now >= due:
                due = now + tick_s
                self._reader.look_at_engines(self._settings.metrics)
                if self._settings.enabled and self._settings.spans:
                    self._reader.report_starts(self._served, closing)
                self._sending.ensure()
            if closing or now >= exports or len(self._served.ended) >= batch_limit:
                # At each round, the code is no longer in the CPU caches. So there is only one round
                # per export.
                self._reader.complete((self._served, self._refused), closing)
                if now >= exports or len(self._served.spans) >= batch_limit:
                    exports = now + self._settings.interval_s
                    self._due.set()
            if closing:
                self._reader.close()
                self._read_all.set()
                return
            self._pause(tick_s)

    def _pause(self, seconds: float) -> None:
        """Wait until the next read of the link.

        While an engine is not connected, a new request ends the wait. An engine accepts connections
        only between its steps. After a short burst, its next step may begin hours later.
        """
        begun = time.monotonic()
        busy_s = min(READ_S, seconds)
        until = begun + (busy_s if self._reader.messages > 2 * BUSY_REQUESTS else seconds)
        while (left := until - time.monotonic()) > 0 and not self._closing.is_set():
            if self._wake.wait(left) and not self._closing.is_set():
                if self._unread >= BUSY_REQUESTS:
                    until = begun + busy_s
                if self._reader.connected or not self._looks_left:
                    self._wake.clear()
                    continue
                self._looks_left -= 1
                self._reader.read_link(look=True)
                time.sleep(LOOK_S)

    # --- the sending thread ---------------------------------------------------------------

    def _send(self) -> None:
        # Log this only now, because vLLM configures its logging after it has loaded its plugins.
        self._reports.begin()
        exports = Exporter(self._settings, self._drops, self._reports)
        self._named.wait(NAME_WAIT_S)
        while True:
            # The timeout applies only if the reading thread has ended.
            self._due.wait(2 * self._settings.interval_s + SAMPLE_S)
            self._due.clear()
            closing = self._closing.is_set()
            if closing:
                self._read_all.wait(FLUSH_S)
            self._reading.ensure()
            exports.name(self._port)
            exports.send_spans(self._served)
            exports.send_spans(self._refused)
            exports.send_samples(self._reader.samples)
            exports.send_starts(self._reader.engines)
            in_flight = self._reader.in_flight()
            if self._build_in_flight is not None and in_flight is not None:
                exports.send_in_flight(in_flight, self._build_in_flight)
            if closing:
                return
