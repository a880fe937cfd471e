from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.over_time import phases
from analysis.over_time.phases import BEFORE_FIRST_TOKEN, KEYS
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS

Seconds = st.one_of(st.none(), st.floats(0, 1e4))


def table(**columns: Sequence[float | None]) -> pa.Table:
    """Return a table of the columns that `layers` reads; missing values are null."""
    length = len(next(iter(columns.values())))
    return pa.table(
        {
            name: pa.array(columns.get(name, [None] * length), pa.float64())
            for name in (*phases.COLUMNS, "ttft_s")
        }
    )


Shares = st.one_of(st.none(), st.floats(0, 0.25))


@given(
    st.lists(st.tuples(*[Seconds] * 5, *[Shares] * 8, st.floats(0, 10)), min_size=1, max_size=20)
)
def test_the_layers_sum_to_the_end_to_end_time(rows: list[tuple[Any, ...]]) -> None:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(phases.COLUMNS[1:6])}
    for first, phase in ((5, "prefill_s"), (9, "decode_s")):
        names = (PREFILL_PARTS if phase == "prefill_s" else DECODE_PARTS)[1:]
        for i, name in enumerate(names):
            columns[name] = [
                None if row[first + i] is None else row[first + i] * (whole or 0.0)
                for row, whole in zip(rows, columns[phase], strict=True)
            ]
    e2e = [sum(v or 0.0 for v in row[:5]) + row[13] for row in rows]
    matrix = phases.layers(table(e2e_s=e2e, **columns))
    assert (matrix >= 0).all()
    assert matrix.sum(axis=1) == pytest.approx(np.array(e2e), rel=1e-9, abs=2e-6)


def test_parts_belong_to_their_phase() -> None:
    matrix = phases.layers(
        table(
            e2e_s=[4.0],
            prefill_s=[1.0],
            decode_s=[3.0],
            prefill_stall_s=[0.4],
            decode_preempted_s=[0.5],
            decode_others_prefill_s=[0.25],
            decode_others_decode_s=[0.25],
        )
    )
    shown = dict(zip(KEYS, matrix[0].round(9).tolist(), strict=True))
    assert shown["prefill"] == 0.6
    assert shown["decode"] == 2.0
    assert (shown["stall"], shown["preempted"], shown["others"]) == (0.4, 0.5, 0.5)
    assert shown["unaccounted"] == 0


def test_unknown_phases_are_shown_as_not_split() -> None:
    matrix = phases.layers(table(e2e_s=[2.0]))
    assert dict(zip(KEYS, matrix[0], strict=True))["unaccounted"] == 2.0


def test_the_mean_layers_sum_to_the_mean_end_to_end_time() -> None:
    rng = np.random.default_rng(3)
    decode = rng.uniform(1, 2, 90)
    matrix = phases.layers(table(e2e_s=(decode + 1).tolist(), decode_s=decode.tolist()))
    index = rng.integers(0, 3, 90)
    means, number = phases.mean_per_bin(matrix, index, 4)
    for bin_ in range(3):
        assert means[bin_].sum() == pytest.approx((decode[index == bin_] + 1).mean())
    assert number.tolist() == [*np.bincount(index, minlength=3), 0]
    assert np.isnan(means[3]).all()


def test_the_largest_phase_is_that_of_the_slowest() -> None:
    queue, decode = [0.0] * 99 + [30.0], [5.0] * 99 + [6.0]
    made = table(
        e2e_s=[q + d for q, d in zip(queue, decode, strict=True)],
        queue_s=queue,
        decode_s=decode,
        ttft_s=queue,
    )
    matrix = phases.layers(made)
    found = phases.largest_of_slowest(made, matrix, "e2e_s")
    assert found is not None
    assert (found.layer.key, found.requests) == ("queue", 1)
    assert found.share == pytest.approx(30 / 36)
    first = phases.largest_of_slowest(made, matrix, "ttft_s", BEFORE_FIRST_TOKEN)
    assert first is not None
    assert first.share == 1.0


def test_without_known_phases_no_phase_is_largest() -> None:
    made = table(e2e_s=[1.0, 2.0])
    assert phases.largest_of_slowest(made, phases.layers(made), "ttft_s") is None
