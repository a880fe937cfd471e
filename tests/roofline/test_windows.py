from typing import Any

import numpy as np
import pytest

from roofline.chunks import Chunks
from roofline.modelled import ModelSource
from roofline.peaks import device_named
from roofline.samples import Columns
from roofline.shape_from_config import shape_of
from roofline.verdict import RooflineFinding, RooflineVerdict
from roofline.windows import RooflineWindow, windows_of
from roofline.wording import findings, sentence
from tests.roofline import configs

SHAPE = shape_of(configs.llama_3_8b())
H100 = device_named("NVIDIA H100 80GB HBM3")
S = 10**9
START = 1_790_000_040 * S


def an_engine(
    seconds: int = 120,
    step_s: float = 0.016,
    busy: float = 1.0,
    decodes: float = 32,
    context: float = 8192,
    prefill: float = 0,
    **changes: Any,
) -> Columns:
    """Return samples, one per second, of an engine with identical steps."""
    at = np.arange(seconds + 1)
    steps = at * busy / step_s
    numbers = {
        "steps_total": steps,
        "busy_s_total": at * busy,
        "scheduled_prefill_tokens_total": steps * prefill,
        "prefill_attention_total": steps * prefill**2 / 2,
        "context_tokens_total": steps * decodes * context,
        "decodes_total": steps * decodes,
        **changes,
    }
    return Columns(
        at_unix_ns=START + at * S,
        numbers={name: np.asarray(column, dtype=np.float64) for name, column in numbers.items()},
        series=np.zeros(at.size, dtype=np.int64),
    )


def gpus(seconds: int = 120, **values: float) -> Columns:
    at = START + np.arange(1, seconds + 1) * S
    return Columns(
        at_unix_ns=at, numbers={name: np.full(at.size, value) for name, value in values.items()}
    )


def first(engine: Columns, measured: Columns | None = None, **changes: Any) -> RooflineWindow:
    given: dict[str, Any] = {"shape": SHAPE, "device": H100, **changes}
    return windows_of(engine, gpus=measured, **given)[0]


def test_the_published_step_at_the_bandwidth_of_an_h100() -> None:
    """49.4 GB in 16 ms is 92 % of 3.35 TB/s."""
    window = first(an_engine(), gpus(sm_active_ratio=0.95, tensor_active_ratio=0.05))
    assert window.model is ModelSource.SHAPE
    assert window.terms is not None
    assert window.terms.step_s == pytest.approx(0.016)
    assert window.terms.memory_s == pytest.approx(0.01474, rel=1e-3)
    assert window.mbu == pytest.approx(0.921, abs=2e-3)
    assert window.mfu == pytest.approx(0.039, abs=2e-3)
    assert window.verdict is RooflineVerdict.MEMORY_BOUND
    assert window.findings == (RooflineFinding.LOW_UTILISATION_LONG_STEPS,)
    text = sentence(window)
    assert text.startswith("Memory-bound, not idle: 5 % matrix units active and steps of 16 ms")
    assert "49.4 GB" in text
    assert "14.7 ms of memory time (MBU 92 %)" in text
    assert "0.624 ms of compute time (MFU 4 %)" in text


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    window = first(an_engine(step_s=0.22, decodes=0, context=0, prefill=8192))
    assert window.verdict is RooflineVerdict.COMPUTE_BOUND
    assert window.mfu == pytest.approx(0.6, abs=0.05)
    assert sentence(window).startswith("Compute-bound: a step of 220 ms needs")


def test_a_long_prompt_reads_back_its_earlier_chunks() -> None:
    """The prompt has 131,072 tokens of Llama-3-8B in 64 chunks of 2,048.

    The sum of the chunks' starts is 2,048 · (0 + … + 63) = 4,128,768 tokens of 128 KiB, or 541 GB;
    the weights add 961 GB.
    """
    steps = np.arange(66.0)
    done = np.minimum(np.maximum(steps - 1, 0), 64) * 2_048  # idle for one second at both ends
    prompt = an_engine(
        65,
        steps_total=np.minimum(np.maximum(steps - 1, 0), 64),
        scheduled_prefill_tokens_total=done,
        prefill_attention_total=done**2 / 2,
        context_tokens_total=np.zeros(66),
        decodes_total=np.zeros(66),
    )
    chunks = Chunks(2_048)
    one = first(prompt, width_s=None, chunks=chunks)
    assert one.weight_bytes == pytest.approx(64 * 15.01e9, rel=2e-3)
    written = 131_072 * 128 * 1_024
    assert one.kv_bytes is not None
    assert one.kv_bytes == pytest.approx(4_128_768 * 128 * 1_024 + written, rel=1e-9)
    assert one.kv_bytes - written == pytest.approx(541.2e9, rel=1e-3)
    assert one.bytes == pytest.approx(961e9 + 541e9 + written, rel=2e-3)
    assert first(prompt, width_s=None).kv_bytes == pytest.approx(written)


def test_a_step_that_neither_limit_explains_is_overhead() -> None:
    window = first(an_engine(step_s=0.02, decodes=1, context=100))
    assert window.verdict is RooflineVerdict.OVERHEAD_BOUND
    assert "CPU time, kernel launches" in sentence(window)


def test_an_idle_gpu_differs_from_one_that_waits() -> None:
    idle = first(an_engine(busy=0.05), gpus(sm_active_ratio=0.04))
    assert idle.verdict is RooflineVerdict.IDLE
    assert sentence(idle) == "Idle: multiprocessors active 4 % of the time."
    waiting = first(an_engine(), gpus(sm_active_ratio=0.1))
    assert waiting.verdict is RooflineVerdict.IDLE
    assert "the GPU waits for the CPU or for another GPU" in sentence(waiting)
    unmeasured = first(an_engine(busy=0.05))
    assert sentence(unmeasured) == "Idle: the engine was in a step for 5 % of the time."


def test_the_modelled_bandwidth_is_over_the_whole_window() -> None:
    whole, half = first(an_engine()), first(an_engine(busy=0.5))
    assert half.mbu == pytest.approx(whole.mbu)
    assert whole.modelled_bytes_per_s is not None
    assert half.modelled_bytes_per_s == pytest.approx(whole.modelled_bytes_per_s / 2)


def test_measured_against_modelled() -> None:
    modelled = first(an_engine()).modelled_bytes_per_s
    assert modelled is not None
    near = first(an_engine(), gpus(dram_bandwidth_bytes_per_s=0.9 * modelled))
    assert near.residual_ratio == pytest.approx(-0.1, abs=0.01)
    assert findings(near) == []
    below = first(an_engine(), gpus(dram_bandwidth_bytes_per_s=0.5 * modelled))
    assert RooflineFinding.MEASURED_BELOW_MODEL in below.findings
    assert "50 % below the modelled minimum" in findings(below)[0]
    busy = gpus(dram_bandwidth_bytes_per_s=2.0e12)
    above = first(an_engine(busy=0.4, decodes=1), busy)
    assert RooflineFinding.MEASURED_ABOVE_MODEL in above.findings
    assert "Measured bandwidth (2000 GB/s)" in findings(above)[0]


def test_a_measured_share_is_of_the_devices_peak() -> None:
    """DCGM reports only a share of the bandwidth, so an unknown device has no bytes per second."""
    measured = gpus(dram_bandwidth_ratio=0.8)
    assert first(an_engine(), measured).measured_bytes_per_s == pytest.approx(0.8 * 3.35e12)
    assert first(an_engine(), measured, device=None).measured_bytes_per_s is None


def test_more_than_the_peak_is_a_finding() -> None:
    window = first(an_engine(step_s=0.002))
    assert RooflineFinding.BEYOND_THE_PEAK in window.findings
    assert findings(window)[0].startswith("The result exceeds the device")


def test_windows_are_on_whole_multiples_of_their_width_or_one() -> None:
    windows = windows_of(an_engine(), SHAPE, H100)
    assert [window.from_unix_ns for window in windows] == [START, START + 60 * S, START + 120 * S]
    assert [window.seconds for window in windows] == [59.0, 60.0, 1.0]
    assert [window.mbu for window in windows] == pytest.approx([windows[0].mbu] * 3)
    (window,) = windows_of(an_engine(seconds=90), SHAPE, H100, width_s=None)
    assert (window.from_unix_ns, window.seconds) == (START, 90.0)
    with pytest.raises(ValueError, match="width_s: 0; allowed: more than 0, or None"):
        windows_of(an_engine(), SHAPE, H100, width_s=0)


def test_an_unknown_device_leaves_bytes_and_flops() -> None:
    window = first(an_engine(), device=None)
    assert window.bytes is not None
    assert window.flops is not None
    assert (window.mbu, window.mfu, window.verdict) == (None, None, None)
    assert sentence(window).startswith("Unknown: the model's shape, the device's peaks")


def test_an_arithmetic_without_a_peak_leaves_the_bandwidth() -> None:
    window = first(an_engine(), device=device_named("Tesla T4"))
    assert window.mbu is not None
    assert (window.mfu, window.verdict) == (None, None)


def test_vllms_estimates_are_used_for_an_unknown_shape() -> None:
    values: dict[str, Any] = {
        "modelled_flops_total": np.arange(121) * 4e13,
        "modelled_read_bytes_total": np.arange(121) * 2.9e12,
        "modelled_write_bytes_total": np.arange(121) * 0.1e12,
    }
    window = first(an_engine(**values), shape=None)
    assert window.model is ModelSource.VLLM
    assert window.mbu == pytest.approx(3.0 / 3.35)
    assert window.verdict is RooflineVerdict.MEMORY_BOUND
    assert first(an_engine(**values)).model is ModelSource.SHAPE


def test_without_shape_and_without_vllms_model_nothing_is_modelled() -> None:
    window = first(an_engine(), gpus(dram_bandwidth_bytes_per_s=1e12), shape=None)
    assert (window.model, window.bytes, window.mbu, window.residual_ratio) == (None,) * 4
    assert window.measured_bytes_per_s == 1e12
    assert window.steps is not None


def test_an_older_engine_that_does_not_count_context_is_not_modelled() -> None:
    engine = an_engine()
    numbers = {name: v for name, v in engine.numbers.items() if name != "context_tokens_total"}
    old = Columns(at_unix_ns=engine.at_unix_ns, numbers=numbers, series=engine.series)
    assert first(old).bytes is None


def test_a_restart_is_no_step_back() -> None:
    engine = an_engine(seconds=40)
    numbers = {
        name: np.concatenate([values[:21], values[:20]]) for name, values in engine.numbers.items()
    }
    series = np.where(np.arange(41) < 21, 0, 1)
    again = Columns(at_unix_ns=engine.at_unix_ns, numbers=numbers, series=series)
    (window,) = windows_of(again, SHAPE, H100)
    assert window.busy_s == pytest.approx(20 + 19)
    assert window.mbu == pytest.approx(first(engine).mbu)


def test_processes_that_each_saw_a_part_add_up() -> None:
    """The steps that two API servers report are added, but the seconds are not."""
    engine = an_engine(seconds=50)
    both = Columns(
        at_unix_ns=np.concatenate([engine.at_unix_ns] * 2),
        numbers={name: np.concatenate([v / 2] * 2) for name, v in engine.numbers.items()},
        series=np.repeat([0, 1], engine.at_unix_ns.size),
    )
    (one,), (two,) = windows_of(engine, SHAPE, H100), windows_of(both, SHAPE, H100)
    assert two.seconds == one.seconds
    assert two.steps == pytest.approx(one.steps)
    assert two.mbu == pytest.approx(one.mbu)


def test_no_samples_no_windows() -> None:
    none = an_engine(seconds=0)
    assert windows_of(none, SHAPE, H100) == []
    empty = Columns(at_unix_ns=np.zeros(0, dtype=np.int64), numbers={})
    assert windows_of(empty, SHAPE, H100) == []
