import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from collector.gpus.configured_owners import configured_owners_of
from collector.gpus.owners import Owners
from collector.gpus.reader import Absence, AbsenceReason, GpuReadFailure, ReaderError, Reading
from collector.gpus.sampler import REDISCOVER_S, GpuSampler, ScheduledGpuReader
from telemetry.gpus import GpuSample
from tests.collector.gpus.conftest import NOW_UNIX_NS, FakeProc
from tests.collector.gpus.making import of_dcgm, reading

Make = Callable[..., GpuSampler]


class Answers:
    def __init__(self, *answers: Reading | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def read(self) -> Reading:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Kept:
    def __init__(self) -> None:
        self.samples: list[GpuSample] = []
        self.refusal: Exception | None = None

    async def __call__(self, samples: Sequence[GpuSample]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.samples.extend(samples)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def sampler(proc: FakeProc, kept: Kept) -> Make:
    def make(*readers: ScheduledGpuReader, **about: object) -> GpuSampler:
        owners = Owners(
            "gpu-host", proc.processes(), configured_owners_of(["*=chat-0", "GPU-typo=x"])
        )
        return GpuSampler(readers, owners, kept, clock_unix_ns=lambda: NOW_UNIX_NS, **about)  # type: ignore[arg-type]

    return make


def read(sampler: GpuSampler, *readers: ScheduledGpuReader) -> None:
    async def run() -> None:
        for reader in readers:
            await sampler.read(reader)

    asyncio.run(run())


def absent(why: AbsenceReason) -> ReaderError:
    return ReaderError(Absence(why))


def test_a_reading_is_passed_on_with_its_replica(sampler: Make, kept: Kept) -> None:
    reader = ScheduledGpuReader("nvml", Answers(Reading((reading("GPU-1"), reading("GPU-2")))))
    made = sampler(reader)
    read(made, reader)
    assert [(each.replica, each.gpu) for each in kept.samples] == [
        ("chat-0", "GPU-1"),
        ("chat-0", "GPU-2"),
    ]
    [state] = made.report()
    assert (state.up, len(state.gpus), state.failures) == (True, 2, {})
    assert state.last_success_unix_ns == NOW_UNIX_NS
    assert state.duration_s is not None


@pytest.mark.parametrize(
    "why",
    [
        AbsenceReason.NO_PACKAGE,
        AbsenceReason.NO_LIBRARY,
        AbsenceReason.NO_DRIVER,
        AbsenceReason.NO_GPU,
    ],
)
def test_without_a_gpu_nothing_is_logged(
    sampler: Make, caplog: pytest.LogCaptureFixture, why: AbsenceReason
) -> None:
    reader = ScheduledGpuReader("nvml", Answers(absent(why)))
    made = sampler(reader)
    read(made, reader, reader)
    [state] = made.report()
    assert (state.up, state.failures) == (None, {})
    assert state.absence == Absence(why)
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []


def test_a_lost_driver_is_logged_once_and_counted_each_time(
    sampler: Make, caplog: pytest.LogCaptureFixture
) -> None:
    good = Reading((reading(),))
    reader = ScheduledGpuReader(
        "nvml",
        Answers(good, absent(AbsenceReason.NO_DRIVER), absent(AbsenceReason.NO_DRIVER), good),
    )
    made = sampler(reader)
    read(made, reader, reader, reader)
    [state] = made.report()
    assert (state.up, state.failures, state.gpus) == (False, {AbsenceReason.NO_DRIVER: 2}, ())
    assert caplog.text.count("no_driver") == 1
    read(made, reader)
    assert (state.up, state.absence) == (True, None)


def test_a_lost_gpu_and_its_return_are_logged_once(
    sampler: Make, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Reading((reading("GPU-2"),), (GpuReadFailure("GPU 0", Absence(AbsenceReason.LOST)),))
    reader = ScheduledGpuReader(
        "nvml", Answers(lost, lost, Reading((reading("GPU-1"), reading("GPU-2"))))
    )
    made = sampler(reader)
    read(made, reader, reader)
    [state] = made.report()
    assert (state.up, state.failures) == (True, {AbsenceReason.LOST: 2})
    assert [each.gpu for each in kept.samples] == ["GPU-2", "GPU-2"]
    read(made, reader)
    assert [each.getMessage() for each in caplog.records] == [
        "gpus: nvml: GPU 0: lost",
        "gpus: nvml: GPU 0 is back",
    ]


@pytest.mark.parametrize("defect", [RuntimeError("a bug"), KeyError("x")])
def test_an_exception_of_a_reader_is_an_ordinary_failure(
    sampler: Make, kept: Kept, defect: Exception
) -> None:
    reader = ScheduledGpuReader("amd_smi", Answers(defect, Reading((reading(),))))
    made = sampler(reader)
    read(made, reader)
    [state] = made.report()
    assert (state.up, state.failures) == (False, {AbsenceReason.FAILED: 1})
    assert type(defect).__name__ in str(state.absence)
    read(made, reader)
    assert len(kept.samples) == 1


def test_a_failing_store_loses_only_one_reading(sampler: Make, kept: Kept) -> None:
    reader = ScheduledGpuReader("nvml", Answers(Reading((reading(),))))
    made = sampler(reader)
    kept.refusal = OSError("disk full")
    read(made, reader)
    [state] = made.report()
    assert (state.up, state.failures) == (False, {AbsenceReason.NOT_KEPT: 1})
    kept.refusal = None
    read(made, reader)
    assert (state.up, len(kept.samples)) == (True, 1)


def test_a_gpu_of_two_readers_is_sampled_once(sampler: Make, kept: Kept) -> None:
    nvml = ScheduledGpuReader(
        "nvml", Answers(Reading((reading(values={"dram_bandwidth_ratio": 0.5}),)))
    )
    dcgm = ScheduledGpuReader("http://x", Answers(Reading((of_dcgm(),))))
    read(sampler(nvml, dcgm), nvml, dcgm, nvml, dcgm)
    assert [str(each.source) for each in kept.samples] == ["nvml", "nvml"]


def test_each_reader_has_its_own_pace(sampler: Make, caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 6:
            enough.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    here = ScheduledGpuReader("nvml", Answers(Reading((reading(),))))
    nothing = ScheduledGpuReader("amd_smi", Answers(absent(AbsenceReason.NO_PACKAGE)))

    async def run() -> None:
        made = sampler(here, nothing, pause=pause)
        running = asyncio.create_task(made.run())
        async with asyncio.timeout(20):
            await enough.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert {round(each) for each in pauses} & {1}
    assert any(each > REDISCOVER_S - 5 for each in pauses)
    assert "--gpu-replica GPU-typo: no such GPU was found on this machine" in caplog.text
