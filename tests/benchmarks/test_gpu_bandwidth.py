import ctypes
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest

from benchmarks import gpu_bandwidth
from benchmarks.gpu_bandwidth import DUTIES, Point, main, measure, table
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import DRAM, Card, Driver

install = gpus_of_tests.install
COPY_S, COPY_BYTES = 0.01, 4e9


@pytest.mark.parametrize("duty", DUTIES)
def test_the_known_rate_is_of_the_copies_that_were_made(duty: float) -> None:
    now_s = 0.0

    def clock() -> float:
        return now_s

    def wait(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def copy() -> float:
        wait(COPY_S)
        return 1.0

    full = COPY_BYTES / COPY_S
    point = measure(duty, copy, lambda: 0.95 * full * duty, 3, COPY_BYTES, clock, wait)
    assert point is not None
    assert point.known_bytes_per_s == pytest.approx(full * duty, rel=1e-6)
    assert point.ratio == pytest.approx(0.95, rel=1e-6)
    assert measure(duty, copy, lambda: None, 1, COPY_BYTES, clock, wait) is None


def test_the_target_value_is_met_or_missed() -> None:
    good, bad = Point(0.5, 1e12, 1.09e12), Point(1.0, 2e12, 1.7e12)
    assert table([good])[-1] == "goal: within 10%; the worst is 9.0% off: kept"
    assert table([good, bad])[-1] == "goal: within 10%; the worst is 15.0% off: MISSED"
    assert table([good])[1].split() == ["50%", "1.000", "1.090", "1.090"]


def test_without_a_gpu_it_prints_the_reason_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` succeeds on a machine without a GPU."""

    def missing(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("nothing measured: no NVIDIA GPU: no_library")


def test_an_older_gpu_is_reported(install: Callable[..., Driver]) -> None:
    install(Card(supports_gpm=False))
    output = gpu_bandwidth.why_not()
    assert output is not None
    assert output.startswith("no GPU here reports its bandwidth: not_supported (older than Hopper")


UUID = "12345678-aaaa-bbbb-cccc-1234567890ab"
PEAK = 2 * 2_619e6 * 5_120 / 8
"""The peak bandwidth that follows from the fake GPU's bus width and clock, in bytes/s."""
AT_BEST = 0.9 * PEAK


class Machine(Driver):
    """A fake GPU that moves bytes in the time of a fake clock.

    The fake driver updates the counters ten times per second.
    """

    def __init__(self, *cards: Card) -> None:
        super().__init__(*cards)
        self.now_s = 1_000.0
        self.moved: list[tuple[float, float]] = [(0.0, 0.0)]
        """Pairs: an instant, and the number of bytes moved until then."""
        self.counted: dict[int, tuple[float, float]] = {}

    def clock(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds + 60e-6
        self.moved.append((self.now_s, self.moved[-1][1]))

    def move(self, size_bytes: float) -> None:
        self.now_s += size_bytes / AT_BEST + 20e-6
        self.moved.append((self.now_s, self.moved[-1][1] + size_bytes))

    def do_nvmlGpmSampleGet(self, of: Card, buffer: Any) -> None:  # noqa: N802 -- the library's
        self.pause(0.004)
        at_s = self.now_s // 0.1 * 0.1
        instants, amounts = zip(*self.moved, strict=True)
        key = ctypes.cast(buffer, ctypes.c_void_p).value or 0
        self.counted[key] = at_s, float(np.interp(at_s, instants, amounts))
        super().do_nvmlGpmSampleGet(of, buffer)

    def do_nvmlGpmMetricsGet(self, asked: Any) -> None:  # noqa: N802 -- the library's
        (from_s, before), (to_s, after) = (
            self.counted[ctypes.cast(each, ctypes.c_void_p).value or 0]
            for each in (asked._obj.sample1, asked._obj.sample2)
        )
        card = self.cards[0]
        card.gpm = {**card.gpm, DRAM: 100 * (after - before) / (to_s - from_s) / PEAK}
        self._looked = card.gpm, card.gpm_codes
        super().do_nvmlGpmMetricsGet(asked)


def torch_on(machine: Machine, uuid: str = UUID) -> Any:
    """Replace PyTorch by a fake that runs its queued copies when it synchronises."""
    queued: list[float] = []

    class Memory:
        def __init__(self, size_bytes: int) -> None:
            self.size_bytes = size_bytes

        def copy_(self, source: "Memory") -> None:
            assert source is not self
            queued.append(2 * source.size_bytes)

    def synchronize() -> None:
        machine.move(sum(queued))
        queued.clear()

    return SimpleNamespace(
        __version__="2.9",
        uint8="uint8",
        zeros=lambda size, dtype, device: Memory(size),
        empty_like=lambda other: Memory(other.size_bytes),
        cuda=SimpleNamespace(
            is_available=lambda: True,
            synchronize=synchronize,
            get_device_properties=lambda _number: SimpleNamespace(uuid=uuid),
        ),
    )


def on(monkeypatch: pytest.MonkeyPatch, *cards: Card, uuid: str = UUID) -> Machine:
    machine = Machine(*cards)
    monkeypatch.setattr(pynvml, "nvmlLib", machine)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setitem(sys.modules, "torch", torch_on(machine, uuid))
    return machine


def test_the_program_measures_the_bytes_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = on(monkeypatch, Card(uuid=f"GPU-{UUID}"), Card(uuid="GPU-other", gpm={}))
    assert main(["--seconds", "5"], machine.clock, machine.pause) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("NVIDIA H100 80GB HBM3, PyTorch 2.9: 1 GiB copied")
    rows = [line.split() for line in output[2:6]]
    assert [row[0] for row in rows] == ["25%", "50%", "75%", "100%"]
    for row, duty in zip(rows, DUTIES, strict=True):
        assert float(row[1]) == pytest.approx(duty * AT_BEST / 1e12, rel=0.03)
        assert float(row[3]) == pytest.approx(1, rel=0.03)
    assert output[6].endswith("kept")
    assert output[7] == f"the reader's peak, by bus and clock: {PEAK / 1e12:.3f} TB/s"
    assert machine.buffers == set()
    assert machine.open == 0


def test_a_gpu_without_the_counter_is_not_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the counter of PyTorch's GPU matters, even if another GPU has one."""
    cards = Card(uuid=f"GPU-{UUID}", supports_gpm=False), Card(uuid="GPU-other")
    machine = on(monkeypatch, *cards)
    assert main([], machine.clock, machine.pause) == 0
    assert "reports no bandwidth: not_supported" in capsys.readouterr().out
    machine = on(monkeypatch, *cards, uuid="")
    assert main([], machine.clock, machine.pause) == 0
    assert "which of several GPUs" in capsys.readouterr().out


def test_memory_that_fits_a_cache_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Copies that fit into a cache would not use the memory."""
    with pytest.raises(SystemExit):
        main(["--gib", "0.03"])
    assert "at least 0.5" in capsys.readouterr().err
