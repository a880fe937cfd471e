"""Helpers for tests of senders: a sink in memory, and a collector in the background."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from collector.server import Collector
from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart


class MemorySink:
    """A sink that keeps rows in lists.

    With `held`, commits wait for `release`. If `failure` is set, commits raise it. If `refusal` is
    set, `submit` raises it.
    """

    def __init__(self, *, held: bool = False) -> None:
        self.requests: list[RequestTimeline] = []
        self.samples: list[EngineSample] = []
        self.starts: list[EngineStart] = []
        self.gpus: list[GpuSample] = []
        self.in_flight: list[InFlightRequest] = []
        self.probes: list[Probe] = []
        self.operations: list[ApplicationOperation] = []
        self.lookups: list[CacheLookup] = []
        self.cold_starts: list[ColdStart] = []
        self.failure: BaseException | None = None
        self.refusal: Exception | None = None
        self.submitted = threading.Semaphore(0)
        """A semaphore that is released once per submission."""
        self._held = held
        self._waiting: list[
            tuple[
                Sequence[RequestTimeline],
                Sequence[EngineSample],
                Sequence[EngineStart],
                Sequence[GpuSample],
                Sequence[InFlightRequest],
                Sequence[Probe],
                Sequence[ApplicationOperation],
                Sequence[CacheLookup],
                Sequence[ColdStart],
                Future[None],
            ]
        ] = []

    def submit(
        self,
        requests: Sequence[RequestTimeline],
        samples: Sequence[EngineSample],
        starts: Sequence[EngineStart] = (),
        gpus: Sequence[GpuSample] = (),
        in_flight: Sequence[InFlightRequest] = (),
        probes: Sequence[Probe] = (),
        operations: Sequence[ApplicationOperation] = (),
        lookups: Sequence[CacheLookup] = (),
        cold_starts: Sequence[ColdStart] = (),
        *,
        leads_ns: Mapping[str, int] = MappingProxyType({}),
    ) -> Future[None]:
        """Accept rows."""
        if self.refusal is not None:
            raise self.refusal
        done: Future[None] = Future()
        self._waiting.append(
            (
                *(requests, samples, starts, gpus, in_flight, probes, operations, lookups),
                *(cold_starts, done),
            )
        )
        if not self._held:
            self._commit()
        self.submitted.release()
        return done

    def release(self) -> None:
        """Commit the waiting rows. Later rows are committed immediately."""
        self._held = False
        self._commit()

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for (
            requests,
            samples,
            starts,
            gpus,
            in_flight,
            probes,
            operations,
            lookups,
            cold_starts,
            done,
        ) in waiting:
            if self.failure is not None:
                done.set_exception(self.failure)
                continue
            self.requests.extend(requests)
            self.samples.extend(samples)
            self.starts.extend(starts)
            self.gpus.extend(gpus)
            self.in_flight.extend(in_flight)
            self.probes.extend(probes)
            self.operations.extend(operations)
            self.lookups.extend(lookups)
            self.cold_starts.extend(cold_starts)
            done.set_result(None)


@contextmanager
def background_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop on a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="background-loop")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextmanager
def running(collector: Collector) -> Iterator[Collector]:
    """Start a collector on a background loop, and stop it at the end."""
    with background_loop() as loop:

        def wait(step: Coroutine[Any, Any, None]) -> None:
            asyncio.run_coroutine_threadsafe(step, loop).result(timeout=30)

        wait(collector.start())
        try:
            yield collector
        finally:
            wait(collector.stop())
