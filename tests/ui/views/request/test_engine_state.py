from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ui.views.request import engine_state

S = 1_000_000_000
START_NS = 1_763_600_000 * S


def engine_samples(**columns: list[Any]) -> pa.Table:
    """Return engine samples 1 s apart, the first from 1 s before a request."""
    number = len(next(iter(columns.values())))
    return pa.table(
        {
            **{
                name: pa.array([None] * number, pa.float64())
                for name in engine_state.ENGINE_COLUMNS
            },
            "replica": ["r1"] * number,
            "engine": [0] * number,
            "process": [1] * number,
            "started_unix_ns": [START_NS - 900 * S] * number,
            "at_unix_ns": [START_NS + place * S for place in range(-1, number - 1)],
            **columns,
        }
    )


def gpu_samples(reasons: list[str | None], gpus: int = 1) -> pa.Table:
    """Return GPU samples 1 s apart; the last GPU has these throttle reasons."""
    number = len(reasons)
    return pa.table(
        {
            "replica": ["r1"] * number * gpus,
            "gpu": [f"g{gpu}" for gpu in range(gpus) for _ in range(number)],
            "at_unix_ns": [START_NS + place * S for place in range(number)] * gpus,
            "dram_bandwidth_ratio": [0.5] * number * gpus,
            "sm_active_ratio": pa.array([None] * number * gpus, pa.float64()),
            "sm_clock_hz": [990_000_000] * number * gpus,
            "sm_clock_max_hz": [1_980_000_000] * number * gpus,
            "throttle_reasons": pa.array(
                ["" if reason is not None else None for reason in reasons] * (gpus - 1) + reasons,
                pa.string(),
            ),
        }
    )


def test_only_reported_values_have_a_strip() -> None:
    table = engine_samples(
        waiting=[0, 3, 1],
        steps_total=[100, 110, 130],
        prefill_tokens_total=[0, 5000, 5100],
        longest_step_s=[0.02, 0.4, None],
    )
    found = {series.title: series for series in engine_state.engine_series(table, START_NS)}
    assert list(found) == ["waiting", "prefill tokens per step", "longest step"]
    (line,) = found["prefill tokens per step"].lines
    assert line.at_s.tolist() == [-1.0, 0.0, 1.0]
    np.testing.assert_allclose(line.values, [np.nan, 500.0, 5.0])
    assert found["longest step"].shown(0.4) == "400 ms"


def test_gpus_are_lines_against_their_peak() -> None:
    found = {
        series.title: series
        for series in engine_state.gpu_series(gpu_samples(["", ""], 2), START_NS)
    }
    assert list(found) == ["memory bandwidth / peak", "clock / maximum"]
    assert [line.name for line in found["clock / maximum"].lines] == ["g0", "g1"]
    assert found["clock / maximum"].lines[0].values.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("reasons", "gpus", "expected"),
    [
        (["", "hw_slowdown,sw_power_cap", ""], 1, "throttled during the request: hw slowdown"),
        (["", "sw_power_cap"], 2, "1 of 2 GPUs was throttled during the request: sw power cap."),
        (["", ""], 1, "clock was not throttled"),
        (["hw_slowdown", "", ""], 1, "was not throttled"),
        ([None, None], 1, None),
    ],
)
def test_throttling_is_a_sentence(
    reasons: list[str | None], gpus: int, expected: str | None
) -> None:
    table = gpu_samples(reasons, gpus)
    reported = engine_state.throttled(table, START_NS + S // 2, START_NS + S)
    assert (
        (reported is None) if expected is None else (reported is not None and expected in reported)
    )


def test_no_samples_make_no_strips() -> None:
    assert engine_state.engine_series(engine_samples(waiting=[]), START_NS) == []
    assert engine_state.gpu_series(gpu_samples([]), START_NS) == []
