"""From a message's bytes to its acknowledgement: read, keep, tell, and only then answer.

Knows no transport. An answer means committed; anything else is an `IntakeError`, which
says whether to send again. A sender that hangs up does not stop what it began: rows that
reach the store are told to the listeners all the same.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import Message

from collector.counters import Counters
from collector.errors import BusyError, StoreFailedError, StoreRefusedError
from collector.limits import Limits, Rates
from collector.normalise.batch import Batch
from collector.reading import Reading
from collector.reasons import Unstored
from collector.signals import Signal
from collector.sink import Forward, GpuListener, Listener, Sink
from telemetry.tasks import Task

Step = Callable[[Batch, int], None]
"""What is done to a message's rows, which nobody else has seen yet, before they are kept; told
when it arrived, in unix ns."""

DOUBT_S: Final = 10.0
"""How long a store that failed is not counted on."""

_log = logging.getLogger(__name__)


class Intake:
    """Takes messages in, on one event loop.

    Args:
        sink: keeps the rows.
        listeners: hear of the rows once they are kept.
        counters: what became of everything.
        clock_unix_ns: the present.
        limits: bodies held at once and taken a second; more are told to come again.
        reading: how messages are read; closed at the end.
        clock: monotonic seconds.
        forward: given each message that is kept, as it came.
        gpu_listeners: hear of samples of GPUs once they are kept.
        steps: what each message's rows go through, in this order. One that fails is counted, and
            the rows are kept as it left them.
        ahead_ns: by how much the system clock is ahead of `clock_unix_ns`: a sender that reads
            the same clock is not refused for it.
    """

    def __init__(
        self,
        sink: Sink,
        listeners: Sequence[Listener],
        counters: Counters,
        clock_unix_ns: Callable[[], int],
        limits: Limits,
        reading: Reading,
        clock: Callable[[], float] = time.monotonic,
        forward: Forward | None = None,
        gpu_listeners: Sequence[GpuListener] = (),
        steps: Sequence[Step] = (),
        ahead_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._steps = steps
        self.enriching = Task("enrichment")
        self._ahead_ns = ahead_ns
        self._sink = sink
        self._listeners = listeners
        self._gpu_listeners = gpu_listeners
        self._counters = counters
        self._clock_unix_ns = clock_unix_ns
        self._forward = forward
        self._max_waiting_bytes = limits.max_waiting_bytes
        self._clock = clock
        self._rates = Rates(limits, clock)
        self._tasks: set[asyncio.Task[Message]] = set()
        # One at a time: two would take turns all the same, and twice the memory.
        self._thread = ThreadPoolExecutor(1, "collector-reading")
        self._reading = reading
        self._store_failed_at: float | None = None

    @property
    def keeping(self) -> bool:
        """Whether the store takes rows, as far as anybody knows.

        `DOUBT_S` after a failure it is worth another try: were nobody to send until the store
        is seen to have recovered, nobody would ever see it.
        """
        failed_at = self._store_failed_at
        return failed_at is None or self._clock() - failed_at > DOUBT_S

    async def receive(
        self, signal: Signal, body: bytes, *, peer: str, json: bool = False
    ) -> Message:
        """Keep what a message holds.

        Args:
            signal: what it is about.
            body: decompressed.
            peer: the sender's address.
            json: whether the body is OTLP's JSON, rather than protobuf.

        Returns:
            The answer to send: everything that could be kept is committed.

        Raises:
            IntakeError: nothing is promised; the error says why.
        """
        self._rates.charge(peer, len(body))
        task = asyncio.create_task(self._process(signal, body, json))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def drained(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._thread.shutdown()
        self._reading.close()

    async def _process(self, signal: Signal, body: bytes, json: bool) -> Message:
        with self._room(len(body)):
            arrived_unix_ns = self._clock_unix_ns()
            # A large message takes long to read, and the loop has others to answer.
            batch = await asyncio.get_running_loop().run_in_executor(
                self._thread,
                self._reading.read,
                signal,
                body,
                json,
                arrived_unix_ns + self._ahead_ns(),
            )
            self._enrich(batch, arrived_unix_ns)
            if not batch.empty:
                await self._keep(signal, batch)
            self._counters.kept(signal, batch)
            if self._forward is not None:
                self._forward(signal.http_path, body, json)
            return signal.answer(batch)

    def _enrich(self, batch: Batch, arrived_unix_ns: int) -> None:
        failed = False
        for step in self._steps:
            try:
                step(batch, arrived_unix_ns)
            except Exception as error:  # a defect: rows without a price are better than none
                self.enriching.failed(error)
                _log.exception("%s failed; the rows are kept without it", type(step).__name__)
                failed = True
        if not failed:
            self.enriching.succeeded(arrived_unix_ns / 1e9)

    @contextmanager
    def _room(self, size_bytes: int) -> Iterator[None]:
        held = self._counters.waiting_bytes
        # An empty house takes any message: the transports have checked its size.
        if held and held + size_bytes > self._max_waiting_bytes:
            raise BusyError(
                f"{held} bytes wait to be stored, and {size_bytes} more would exceed"
                f" {self._max_waiting_bytes}"
            )
        self._counters.waiting(1, size_bytes)
        try:
            yield
        finally:
            self._counters.waiting(-1, -size_bytes)

    async def _keep(self, signal: Signal, batch: Batch) -> None:
        try:
            future = self._sink.submit(batch.requests, batch.samples, batch.starts, batch.gpus)
        except Exception as error:
            self._counters.unstored(signal, batch, Unstored.STORE_BUSY)
            self._store_failed_at = self._clock()
            raise BusyError(f"the store takes nothing just now: {error}") from error
        try:
            await asyncio.wrap_future(future)
        except ValueError as error:
            self._counters.unstored(signal, batch, Unstored.STORE_REFUSED)
            _log.warning(
                "the store refused a batch of %d %s: %s", batch.accepted, signal.name, error
            )
            raise StoreRefusedError(f"the store cannot keep these rows: {error}") from error
        except (Exception, asyncio.CancelledError) as error:
            self._counters.unstored(signal, batch, Unstored.STORE_FAILED)
            self._store_failed_at = self._clock()
            _log.warning("the store failed on a batch of %s: %s", signal.name, error)
            raise StoreFailedError("the store could not commit; send again") from error
        self._store_failed_at = None
        self._counters.committed(self._clock_unix_ns())
        for listener in self._listeners:
            with self._failing_alone():
                listener.on_stored(batch.requests, batch.samples)
        for gpu_listener in self._gpu_listeners if batch.gpus else ():
            with self._failing_alone():
                gpu_listener.on_gpus_stored(batch.gpus)

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # the rows are kept, and the sender must hear so
            self._counters.listener_failed()
            _log.exception("a listener failed")
