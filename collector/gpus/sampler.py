"""Read GPUs periodically, assign each sample to a replica, and store the samples.

Each reader has its own task. If the machine has no GPU, the task tries again after a minute and
logs nothing.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from collector.gpus.owners import Owners
from collector.gpus.reader import (
    ABSENT_HERE,
    Absence,
    AbsenceReason,
    GpuReader,
    GpuReading,
    ReaderError,
)
from collector.gpus.source_preference import SourcePreference
from telemetry.gpus import GpuSample
from telemetry.tasks import Task

_log = logging.getLogger(__name__)

REDISCOVER_S: Final = 60.0


class ScheduledGpuReader(NamedTuple):
    """A reader, its name, and its interval."""

    name: str
    reader: GpuReader
    every_s: float = 1.0


@dataclass(slots=True)
class ReaderState:
    """The last results of a reader."""

    name: str
    up: bool | None = None
    """Whether the last `read` succeeded. It is None if no read has ever found a GPU
    (`ABSENT_HERE`)."""
    gpus: tuple[GpuReading, ...] = ()
    absence: Absence | None = None
    duration_s: float | None = None
    last_success_unix_ns: int | None = None
    failures: Counter[str] = field(default_factory=Counter)
    """Maps each reason to the number of failures. A failed call counts as one failure. In a
    successful call, each GPU that could not be read counts as one failure."""
    lost: dict[str, Absence] = field(default_factory=dict)
    """The GPUs and addresses that could not be read in the last call."""


class GpuSampler:
    """Calls each reader periodically until cancelled.

    Args:
        keep: stores samples. An exception counts as a failure of the reader.
    """

    def __init__(
        self,
        readers: Sequence[ScheduledGpuReader],
        owners: Owners,
        keep: Callable[[Sequence[GpuSample]], Awaitable[None]],
        *,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._readers = readers
        self._owners = owners
        self._keep = keep
        self._clock_unix_ns = clock_unix_ns
        self._pause = pause
        self._preference = SourcePreference()
        self.task = Task("gpu sampler")
        self._states = {each.name: ReaderState(each.name) for each in readers}

    def report(self) -> list[ReaderState]:
        """The last results of each reader."""
        return list(self._states.values())

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._readers:
                tasks.create_task(self._read_forever(each))
            await self._pause(REDISCOVER_S)
            for gpu in self._owners.unseen:
                _log.warning("gpus: --gpu-replica %s: no such GPU was found on this machine", gpu)

    async def _read_forever(self, reader: ScheduledGpuReader) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            try:
                await self.read(reader)
            except Exception as error:
                self.task.failed(error)
                _log.exception("gpus: %s: reading the GPUs failed", reader.name)
                absent = Absence(AbsenceReason.FAILED, type(error).__name__)
                self._failed(self._states[reader.name], absent)
            else:
                self.task.succeeded(self._clock_unix_ns() / 1e9)
            absence = self._states[reader.name].absence
            nothing_here = absence is not None and absence.why in ABSENT_HERE
            due_s = max(due_s + (REDISCOVER_S if nothing_here else reader.every_s), loop.time())
            await self._pause(due_s - loop.time())

    async def read(self, reader: ScheduledGpuReader) -> None:
        """Call one reader once and store its samples, or count the failure."""
        state = self._states[reader.name]
        begun = time.monotonic()
        try:
            reading = await reader.reader.read()
        except ReaderError as error:
            self._failed(state, error.absence)
            return
        except Exception as error:  # a defect of Tailspan or of a library
            self._failed(state, Absence(AbsenceReason.FAILED, f"{type(error).__name__}: {error}"))
            return
        now_lost = {each.what: each.absence for each in reading.failures}
        for what, absence in now_lost.items():
            state.failures[absence.why] += 1
            if what not in state.lost:
                _log.warning("gpus: %s: %s: %s", reader.name, what, absence)
        for what in state.lost.keys() - now_lost.keys():
            _log.warning("gpus: %s: %s is back", reader.name, what)
        state.lost = now_lost
        kept = [each for each in reading.gpus if self._preference.keeps(each)]
        try:
            samples = await asyncio.to_thread(self._owners.assign, kept)
            if samples:
                await self._keep(samples)
        except Exception as error:
            self._failed(state, Absence(AbsenceReason.NOT_KEPT, f"{type(error).__name__}: {error}"))
            return
        state.up, state.absence, state.gpus = True, None, reading.gpus
        state.duration_s = time.monotonic() - begun
        state.last_success_unix_ns = self._clock_unix_ns()

    def _failed(self, state: ReaderState, absence: Absence) -> None:
        state.gpus = ()
        if absence.why in ABSENT_HERE and state.up is None:
            if state.absence != absence:
                _log.debug("gpus: %s: %s", state.name, absence)
            state.absence = absence
            return
        if state.absence is None or state.absence.why is not absence.why:
            _log.warning("gpus: %s: %s", state.name, absence)
        state.up, state.absence = False, absence
        state.failures[absence.why] += 1
