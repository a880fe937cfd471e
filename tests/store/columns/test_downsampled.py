from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from sqlalchemy import Engine

from store.columns import downsampled
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.store.conftest import put

START_NS = 1_763_634_000_000_000_000
COLUMNS = ("replica", "at_unix_ns", "steps_total", "simulated")


def window(length_s: int) -> Window:
    return Window(START_NS, START_NS + length_s * 10**9)


def test_few_rows_are_all_read(engine: Engine, sample_row: Callable[..., EngineSample]) -> None:
    rows = [sample_row(number, steps_total=number) for number in reversed(range(100))]
    put(engine, *rows)
    found = downsampled.engine_samples(engine, window(50), COLUMNS)
    assert found.one_in == 1
    assert found.table["steps_total"].to_pylist() == list(range(50))
    assert found.table["simulated"].to_pylist() == [False] * 50
    assert found.table["replica"].to_pylist() == ["a"] * 50


def test_many_rows_are_sampled(engine: Engine, sample_row: Callable[..., EngineSample]) -> None:
    """Each slot keeps neighbouring rows, so the differences of totals stay exact."""
    rows = [sample_row(number, steps_total=number) for number in range(1200)]
    put(engine, *rows)
    found = downsampled.engine_samples(engine, window(1200), COLUMNS, max_rows=300)
    steps = np.array(found.table["steps_total"].to_pylist())
    every_s = found.every_s
    assert (found.one_in in range(3, 7), every_s) == (True, 16 * found.one_in)
    assert steps.size * found.one_in == pytest.approx(1200, rel=0.15)
    runs = np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1)
    assert {run.size for run in runs[1:-1]} == {16}
    assert {int(b[0] - a[0]) for a, b in pairwise(runs[1:-1])} == {every_s}
    assert steps[0] < every_s
    assert steps[-1] >= 1200 - every_s


def test_requests_and_gpus_are_sampled_equally(
    engine: Engine, request_row: Callable[..., RequestTimeline], gpu_row: Callable[..., GpuSample]
) -> None:
    requests = [request_row(number, tenant=("a", "b")[number % 2]) for number in range(600)]
    gpus = [gpu_row(number, replica=("a", "b")[number % 2]) for number in range(600)]
    put(engine, *requests, *gpus)
    some = downsampled.requests(
        engine,
        window(600),
        ["received_unix_ns", "tenant", "ttft_s"],
        {"tenant": "a"},
        max_rows=150,
    )
    assert some.one_in in range(3, 7)
    assert set(some.table["tenant"].to_pylist()) == {"a"}
    assert some.table["ttft_s"].null_count == some.table.num_rows > 40
    cards = downsampled.gpu_samples(engine, window(600), ["replica", "at_unix_ns"], max_rows=150)
    assert cards.table.num_rows * cards.one_in == pytest.approx(600, rel=0.2)


def test_a_short_range_with_many_rows_is_not_empty(
    engine: Engine, sample_row: Callable[..., EngineSample]
) -> None:
    """The range is shorter than the time between two slots of 16 s."""
    put(engine, *(sample_row(number, steps_total=number) for number in range(20)))
    found = downsampled.engine_samples(engine, window(20), COLUMNS, max_rows=10)
    assert found.one_in > 1
    assert found.table.num_rows > 0


def test_an_empty_store_has_no_rows(engine: Engine) -> None:
    found = downsampled.engine_samples(engine, window(10**6), COLUMNS)
    assert (found.table.num_rows, found.table.column_names) == (0, list(COLUMNS))
