from dataclasses import replace
from typing import Any

import pyarrow as pa

from simulator.gpu import machine
from telemetry.starts import written
from tests.ui.conftest import make_start
from ui.views.fleet.roofline import MAX_ROWS, as_html, bounds

S = 10**9
START = make_start("r0", 0, device="NVIDIA H100 80GB HBM3", gpus=1, shape=written(machine(1).shape))
NO_GPUS = pa.table({"replica": pa.array([], pa.string()), "at_unix_ns": pa.array([], pa.int64())})


def samples(step_s: float = 0.0066, **changed: Any) -> pa.Table:
    """Return a minute of an 8B model that decodes 16 requests with 1,000 tokens of context each."""
    rows = []
    for second in range(60):
        steps = round(second / step_s)
        rows.append(
            {
                "replica": "r0",
                "engine": 0,
                "process": 1,
                "started_unix_ns": 0,
                "at_unix_ns": second * S,
                "steps_total": steps,
                "busy_s_total": float(second),
                "scheduled_prefill_tokens_total": 0,
                "prefill_attention_total": 0.0,
                "context_tokens_total": steps * 16_000,
                "decodes_total": steps * 16,
                **changed,
            }
        )
    return pa.Table.from_pylist(rows)


def test_decoding_is_bound_by_memory() -> None:
    (found,) = bounds(samples(), NO_GPUS, [START])
    assert found.window is not None
    text = as_html([found], 1)
    assert "emory-bound" in text
    assert "MBU" in text
    assert "MFU" in text
    assert "H100" in text


def gpu_samples(bytes_per_s: float, sm_active: float) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "replica": "r0",
                "at_unix_ns": second * S,
                "dram_bandwidth_bytes_per_s": bytes_per_s,
                "sm_active_ratio": sm_active,
            }
            for second in range(60)
        ]
    )


def test_the_gpus_of_a_replica_with_several_engines_are_of_no_single_engine() -> None:
    """Engine 0 is busy and engine 1 is idle, so the mean of their GPUs describes neither."""
    gpus = gpu_samples(1.3e12, 0.125)
    for engines in (1, 2):
        starts = [replace(START, engine=engine) for engine in range(engines)]
        of_all = pa.concat_tables([samples(engine=engine) for engine in range(engines)])
        found = bounds(of_all, gpus, starts)[0]
        assert found.window is not None
        measured = found.window.measured_bytes_per_s, found.window.sm_active_ratio
        assert measured == ((1.3e12, 0.125) if engines == 1 else (None, None))
        text = as_html([found], 1)
        assert ("Idle" in text) == ("below the modelled minimum" in text) == (engines == 1)
        assert ("emory-bound" in text) == (engines == 2)


def test_a_step_that_takes_far_longer_is_bound_by_neither() -> None:
    (found,) = bounds(samples(step_s=0.05), NO_GPUS, [START])
    assert "Overhead-bound" in as_html([found], 1)


def test_cpu_is_blamed_only_where_no_work_explains_the_time() -> None:
    """Many prompt tokens also make a step long."""
    prompts = samples(step_s=0.05)
    messages = []
    for stall in (0.0, 0.2):
        reported = prompts.to_pylist()
        for second, row in enumerate(reported):
            row["scheduled_prefill_tokens_total"] = second * 3_000
            row["stall_s_total"] = stall * second
        messages.append(as_html(bounds(pa.Table.from_pylist(reported), NO_GPUS, [START]), 1))
    full, stalled = messages
    assert "CPU" not in full
    assert "The step time grows with the tokens in a step, of which 90 % are prompt tokens" in full
    assert "Scheduled work does not explain 20 % of the step time: CPU" in stalled


def test_an_unknown_verdict_has_a_reason() -> None:
    for starts, why in (
        ([], "the shape of its model is not reported"),
        ([replace(START, shape=None)], "the shape of its model is not reported"),
        ([replace(START, shape=written({"model_type": "<b>mystery</b>"}))], "unknown"),
        ([replace(START, device="<i>Toaster</i>")], "are unknown"),
        ([replace(START, device=None)], "its device is not reported"),
    ):
        (found,) = bounds(samples(), NO_GPUS, starts)
        text = as_html([found], 1)
        assert found.window is None
        assert why in text
        assert "<b>" not in text
        assert "<i>" not in text


def test_a_device_of_a_peak_file_is_known() -> None:
    starts = [replace(START, device="NVIDIA H20")]
    assert bounds(samples(), NO_GPUS, starts)[0].window is None
    peaks = {"NVIDIA H20": {"bytes_per_s": 4.0e12, "flops_per_s": {"bf16": 148e12}}}
    assert bounds(samples(), NO_GPUS, starts, peaks)[0].window is not None


def test_engines_without_a_row_are_counted() -> None:
    engines = MAX_ROWS + 1
    of_all = pa.concat_tables([samples(engine=engine).slice(0, 2) for engine in range(engines)])
    found = bounds(of_all, NO_GPUS, [])
    assert len(found) == MAX_ROWS
    assert "1 more engine" in as_html(found, engines)
    assert "more engine" not in as_html(found, len(found))


def test_no_engine_is_an_empty_table() -> None:
    assert bounds(samples().slice(0, 0), NO_GPUS, []) == []
