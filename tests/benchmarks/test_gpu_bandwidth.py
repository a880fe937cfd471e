"""The benchmark of bandwidth, without a GPU: what it counts, and that it says what it lacks."""

from collections.abc import Callable

import pynvml
import pytest

from benchmarks import gpu_bandwidth
from benchmarks.gpu_bandwidth import DUTIES, Point, main, measure, table
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import Card, Driver

install = gpus_of_tests.install
COPY_S, COPY_BYTES = 0.01, 4e9


@pytest.mark.parametrize("duty", DUTIES)
def test_the_known_rate_is_of_the_copies_that_were_made(duty: float) -> None:
    """Over the time between two looks; at half the duty half as much."""
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


def test_the_bar_is_kept_or_missed() -> None:
    """By the worst of them."""
    good, bad = Point(0.5, 1e12, 1.09e12), Point(1.0, 2e12, 1.7e12)
    assert table([good])[-1] == "bar: within 10%; the worst is 9.0% off: kept"
    assert table([good, bad])[-1] == "bar: within 10%; the worst is 15.0% off: MISSED"
    assert table([good])[1].split() == ["50%", "1.000", "1.090", "1.090"]


def test_without_a_gpu_it_says_so_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` runs everywhere."""

    def missing(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("nothing measured: no NVIDIA GPU: no_library")


def test_an_older_gpu_is_said_to_be_one(install: Callable[..., Driver]) -> None:
    """Before PyTorch is looked for."""
    install(Card(supports_gpm=False))
    assert gpu_bandwidth.why_not() == "no NVIDIA GPU of Hopper's age or newer"
