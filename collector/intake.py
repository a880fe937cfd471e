"""Process a received message: read it, store its rows, notify the listeners and respond.

An acknowledgement means that the rows are committed. An `IntakeError` states whether the sender
should retry. A message is processed even if its sender disconnects.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from google.protobuf.message import Message

from collector.commits import Commits
from collector.counters import Counters
from collector.drop_reasons import Unstored
from collector.errors import (
    IntakeBusyError,
    StoppingError,
    StoreFailedError,
    StoreRefusedError,
    TooSlowError,
)
from collector.limits.fair_queue import FairQueue
from collector.limits.message_memory import MemoryReservation, MessageMemory
from collector.limits.sender_limits import CollectorLimits, RateLimiter
from collector.normalise.batch import NormalisedBatch
from collector.otlp.http_body import inflate
from collector.otlp.message_reader import MessageReader
from collector.signals import Signal
from collector.sink import Forward, GpuListener, InFlightListener, Listener, ProbeListener, Sink
from telemetry.tasks import Task

Step = Callable[[NormalisedBatch, int], None]
"""Changes the rows of a message before they are stored. The second argument is the message's
arrival in unix nanoseconds."""

MAX_PEER_ROWS: Final = 8192
"""Maximum number of uncommitted rows of one sender. If a sender has more, its next message waits.
The maximum is 16 exporters with 512 rows each. A commit of that many rows takes 0.3 s."""

STORE_RETRY_S: Final = 10.0
"""After a failed commit, the store counts as unavailable for this long."""

_log = logging.getLogger(__name__)


class Intake:
    """Receives messages, on one event loop.

    Args:
        listeners: called after the commit.
        reading: the reader of messages. `stop` closes it.
        forward: receives the unchanged bytes of each stored message.
        steps: functions that change the rows in this order, before the rows are stored. If a
            function raises an exception, its changes are left out.
        ahead_ns: returns the nanoseconds by which the system clock is ahead of `clock_unix_ns`.
            Senders on this machine use the system clock, so their timestamps may be this far in the
            future.
    """

    def __init__(
        self,
        sink: Sink,
        listeners: Sequence[Listener],
        counters: Counters,
        clock_unix_ns: Callable[[], int],
        limits: CollectorLimits,
        reading: MessageReader,
        clock: Callable[[], float] = time.monotonic,
        forward: Forward | None = None,
        gpu_listeners: Sequence[GpuListener] = (),
        in_flight_listeners: Sequence[InFlightListener] = (),
        probe_listeners: Sequence[ProbeListener] = (),
        steps: Sequence[Step] = (),
        ahead_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._steps = steps
        self.enriching = Task("enrichment")
        self._ahead_ns = ahead_ns
        self._sink = sink
        self._listeners = listeners
        self._gpu_listeners = gpu_listeners
        self._in_flight_listeners = in_flight_listeners
        self._probe_listeners = probe_listeners
        self._counters = counters
        self._clock_unix_ns = clock_unix_ns
        self._forward = forward
        self._max_body_bytes = limits.max_body_bytes
        self._clock = clock
        self._rates = RateLimiter(limits, clock)
        self._memory = MessageMemory(limits, counters)
        self._tasks: set[asyncio.Task[None]] = set()
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False
        # Use only one thread. Two threads would share the CPU and need twice the memory.
        self._thread = ThreadPoolExecutor(1, "collector-reading")
        self._queue = FairQueue(MAX_PEER_ROWS)
        self._reading = reading
        self._commits = Commits()
        self._store_failed_at: float | None = None

    @property
    def store_available(self) -> bool:
        """Whether to submit rows to the store. It is false for `STORE_RETRY_S` after a failed
        commit. Then it is true again, because only another attempt can show whether the store has
        recovered."""
        failed_at = self._store_failed_at
        return failed_at is None or self._clock() - failed_at > STORE_RETRY_S

    def enter(self, peer: str) -> MemoryReservation:
        """Reserve memory for a message before it is read from the network, or raise IntakeError."""
        if self._stopping:
            raise StoppingError
        self._rates.check(peer)
        return self._memory.enter(peer)

    @asynccontextmanager
    async def arriving(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time that a message may take to arrive.

        Raises:
            TooSlowError: the time limit is exceeded.
            StoppingError: the collector is stopping.
        """
        timeout = asyncio.timeout(seconds)
        self._arriving.add(timeout)
        try:
            async with timeout:
                yield timeout
        except TimeoutError as error:
            if self._stopping:
                raise StoppingError from error
            raise TooSlowError("the message did not arrive in time; send it again") from error
        finally:
            self._arriving.discard(timeout)

    async def receive(
        self,
        signal: Signal,
        body: bytes,
        *,
        peer: str,
        json: bool = False,
        encoding: str = "",
        reservation: MemoryReservation | None = None,
    ) -> Message:
        """Store the rows of a message and return the response.

        Args:
            body: the message as it was sent.
            json: whether the body is OTLP/JSON.
            encoding: gzip, deflate or an empty string.
            reservation: the memory reserved for the message, if any.

        Raises:
            IntakeError: the message was not acknowledged. Its rows may or may not be stored.
        """
        if self._stopping:
            raise StoppingError
        self._rates.charge(peer, len(body))
        reservation = self._memory.enter(peer) if reservation is None else reservation.move()
        try:
            reservation.grow(max(0, len(body) - reservation.size_bytes))
            reservation.set(len(body))
        except BaseException:
            reservation.close()
            raise
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        process = self._process(signal, body, json, encoding, reservation)
        self._tasks.add(asyncio.create_task(self._respond(process, answer)))
        return await answer

    async def stop(self, grace_s: float) -> None:
        """Refuse new messages, and answer all current messages within `grace_s`. Messages that are
        not stored by then get an error."""
        self._stopping = True
        self._queue.refuse_all(StoppingError)
        for timeout in list(self._arriving):
            with suppress(RuntimeError):  # the time limit has already expired
                timeout.reschedule(0)
        await self._answered(0.4 * grace_s)
        # Abort the message that is being read.
        await asyncio.to_thread(self._reading.close)
        await self._answered(0.4 * grace_s)
        for task in self._tasks:
            task.cancel()
        await self._answered(0.2 * grace_s)
        # A reader in this process cannot be aborted. It may continue, because no caller waits for
        # its result.
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._reading.close()  # a process may have started since

    async def _answered(self, within_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def _respond(
        self, process: Coroutine[None, None, Message], answer: asyncio.Future[Message]
    ) -> None:
        """Process a message, and set its answer unless the sender has disconnected.

        `asyncio.shield` is not used, because it would add three callbacks per message.
        """
        task = asyncio.current_task()
        assert task is not None
        message: Message | None = None
        failure: Exception | None = None
        try:
            message = await process
        except asyncio.CancelledError:  # `stop` set it after its grace period
            failure = StoppingError()
        except Exception as error:
            failure = error
        finally:
            self._tasks.discard(task)
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        elif message is not None:
            answer.set_result(message)

    async def _process(
        self, signal: Signal, body: bytes, json: bool, encoding: str, reservation: MemoryReservation
    ) -> Message:
        with reservation:
            arrived_unix_ns = self._clock_unix_ns()
            now_unix_ns = arrived_unix_ns + self._ahead_ns()
            whole, rows = body, 0

            def read() -> NormalisedBatch:
                nonlocal whole, rows
                if encoding:
                    whole = inflate(body, encoding, self._max_body_bytes)
                batch = self._reading.read(signal, whole, json, now_unix_ns)
                rows = batch.accepted
                self._queue.load(reservation.peer, rows)
                return batch

            if self._stopping:
                raise StoppingError
            known = None
            if not json and not encoding and self._queue.has_room(reservation.peer):
                known = self._reading.read_known(signal, body, now_unix_ns)
            try:
                if known is not None:
                    batch, rows = known, known.accepted
                    self._queue.load(reservation.peer, rows)
                else:
                    # Read on a thread, because reading a large message would block the event loop.
                    done = self._queue.put(reservation.peer, read)
                    self._thread.submit(self._queue.run)
                    try:
                        batch = await asyncio.wrap_future(done)
                    finally:
                        self._rates.add(reservation.peer, len(whole) - len(body))
                    # The decompressed message may wait long for the store.
                    reservation.grow(len(whole) - len(body))
                self._enrich(batch, arrived_unix_ns)
                if not batch.empty:
                    await self._keep(signal, batch)
            finally:
                self._queue.load(reservation.peer, -rows)
                if self._queue.has_work() and not self._stopping:
                    self._thread.submit(self._queue.run)
            self._counters.count_stored(signal, batch)
            if self._forward is not None:
                self._forward(signal.http_path, whole, json)
            return signal.answer(batch)

    def _enrich(self, batch: NormalisedBatch, arrived_unix_ns: int) -> None:
        failed = False
        for step in self._steps:
            try:
                step(batch, arrived_unix_ns)
            except Exception as error:
                self.enriching.failed(error)
                _log.exception("%s failed; the rows are stored without it", type(step).__name__)
                failed = True
        if not failed:
            self.enriching.succeeded(arrived_unix_ns / 1e9)

    async def _keep(self, signal: Signal, batch: NormalisedBatch) -> None:
        try:
            future = self._sink.submit(
                *(batch.requests, batch.samples, batch.starts, batch.gpus),
                *(batch.in_flight, batch.probes, batch.operations, batch.lookups),
                batch.cold_starts,
                leads_ns=batch.leads_ns,
            )
        except Exception as error:
            self._counters.count_unstored(signal, batch, Unstored.STORE_BUSY)
            self._store_failed_at = self._clock()
            raise IntakeBusyError(f"the store accepts no rows at the moment: {error}") from error
        try:
            await self._commits.wait(future)
        except ValueError as error:
            self._counters.count_unstored(signal, batch, Unstored.STORE_REFUSED)
            _log.warning(
                "the store refused a batch of %d %s: %s", batch.accepted, signal.name, error
            )
            raise StoreRefusedError(f"the store cannot store these rows: {error}") from error
        except (Exception, asyncio.CancelledError) as error:
            self._counters.count_unstored(signal, batch, Unstored.STORE_FAILED)
            if self._stopping:
                raise StoppingError from error
            self._store_failed_at = self._clock()
            _log.warning("the store failed on a batch of %s: %s", signal.name, error)
            raise StoreFailedError("the store could not commit the rows; send again") from error
        self._store_failed_at = None
        self._counters.committed(self._clock_unix_ns())
        for listener in self._listeners:
            with self._failing_alone():
                listener.on_stored(batch.requests, batch.samples)
        for gpu_listener in self._gpu_listeners if batch.gpus else ():
            with self._failing_alone():
                gpu_listener.on_gpus_stored(batch.gpus)
        for in_flight_listener in self._in_flight_listeners if batch.in_flight else ():
            with self._failing_alone():
                in_flight_listener.on_in_flight_stored(batch.in_flight)
        for probe_listener in self._probe_listeners if batch.probes else ():
            with self._failing_alone():
                probe_listener.on_probes_stored(batch.probes)

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # the rows are committed
            self._counters.listener_failed()
            _log.exception("a listener failed")
