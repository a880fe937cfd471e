"""The state of an engine and its GPUs during a request. Pure.

Times are seconds since the request was received. A value covers the time since the previous sample.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.over_time.columns import FloatArray
from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Samples
from ui.kit import wording

ENGINE_COLUMNS: Final = (
    *("replica", "engine", "process", "started_unix_ns", "at_unix_ns"),
    *("waiting", "running", "kv_usage_ratio", "longest_step_s"),
    *("steps_total", "prefill_tokens_total", "scheduled_prefill_tokens_total"),
)
GPU_COLUMNS: Final = (
    *("replica", "gpu", "at_unix_ns"),
    *("dram_bandwidth_ratio", "sm_active_ratio", "sm_clock_hz", "sm_clock_max_hz"),
    "throttle_reasons",
)
MAX_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class EngineStateLine:
    """The values of one engine process, or of one GPU, over time."""

    name: str
    at_s: FloatArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One quantity over time, with a line for each engine process or GPU."""

    title: str
    lines: Sequence[EngineStateLine]
    shown: Callable[[float], str]
    whole: float | None = None
    """The value that stands for 100 %, or None."""


def engine_series(table: pa.Table, received_unix_ns: int) -> list[TimeSeries]:
    """The series of one engine. The samples have the columns `ENGINE_COLUMNS`."""
    if not table.num_rows:
        return []
    samples = samples_of(table)
    steps = samples.rises("steps_total")
    prefill = _first_known(
        samples.rises("scheduled_prefill_tokens_total"), samples.rises("prefill_tokens_total")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        a_step = np.where(steps > 0, prefill / steps, np.nan)
    quantities = (
        ("waiting", samples.number("waiting"), wording.count, None),
        ("running", samples.number("running"), wording.count, None),
        ("KV cache used", samples.number("kv_usage_ratio"), wording.percent, 1.0),
        ("prefill tokens per step", a_step, wording.number, None),
        ("longest step", samples.number("longest_step_s"), wording.seconds, None),
    )
    names = _names(samples, "process")
    return [
        TimeSeries(title, lines, shown, whole)
        for title, values, shown, whole in quantities
        if (lines := _lines(samples, names, values, received_unix_ns))
    ]


def gpu_series(table: pa.Table, received_unix_ns: int) -> list[TimeSeries]:
    """The series of a replica's GPUs, as shares of their maxima. `table` has the columns
    `GPU_COLUMNS`."""
    if not table.num_rows:
        return []
    samples = samples_of(table)
    with np.errstate(invalid="ignore", divide="ignore"):
        clock = samples.number("sm_clock_hz") / samples.number("sm_clock_max_hz")
    quantities = (
        ("memory bandwidth / peak", samples.number("dram_bandwidth_ratio")),
        ("multiprocessors active", samples.number("sm_active_ratio")),
        ("clock / maximum", clock),
    )
    names = _names(samples, "gpu")
    return [
        TimeSeries(title, lines, wording.percent, 1.0)
        for title, values in quantities
        if (lines := _lines(samples, names, values, received_unix_ns))
    ]


def throttled(table: pa.Table, from_unix_ns: int, to_unix_ns: int) -> str | None:
    """Whether and why the GPUs' clocks were throttled, or None without samples.

    `table` has the columns `GPU_COLUMNS`. The first sample after `to_unix_ns` covers the request's
    end.
    """
    rows = [
        (gpu, at, reasons)
        for gpu, at, reasons in zip(
            *(table[name].to_pylist() for name in ("gpu", "at_unix_ns", "throttle_reasons")),
            strict=True,
        )
        if reasons is not None
    ]
    reasons_of: dict[str, set[str]] = {}
    for gpu in {gpu for gpu, _, _ in rows}:
        mine = [(at, reasons) for name, at, reasons in rows if name == gpu]
        inside = [each for each in mine if from_unix_ns <= each[0] < to_unix_ns]
        after = [each for each in mine if each[0] >= to_unix_ns][:1]
        for _, reasons in (*inside, *after):
            reasons_of.setdefault(gpu, set()).update(filter(None, reasons.split(",")))
    if not reasons_of:
        return None
    throttled_gpus = {gpu: reasons for gpu, reasons in reasons_of.items() if reasons}
    if not throttled_gpus:
        return "The GPU’s clock was not throttled during the request."
    listed = ", ".join(
        sorted({reason for reasons in throttled_gpus.values() for reason in reasons})
    )
    which = f"{len(throttled_gpus)} of {len(reasons_of)} GPUs" if len(reasons_of) > 1 else "the GPU"
    return f"The clock of {which} was throttled during the request: {listed.replace('_', ' ')}."


def _names(samples: Samples, label: str) -> list[str]:
    if label == "gpu":
        texts = samples.texts["gpu"]
        return [texts.values[code] for code in texts.codes.tolist()]
    return [f"process {number:.0f}" for number in samples.number(label).tolist()]


def _lines(
    samples: Samples, names: Iterable[str], values: FloatArray, received_unix_ns: int
) -> list[EngineStateLine]:
    at_s = (samples.at_unix_ns - received_unix_ns) / 1e9
    which = np.array(list(names))
    found = []
    for name in np.unique(which)[:MAX_LINES]:
        mine = which == name
        if np.isfinite(values[mine]).any():
            found.append(EngineStateLine(str(name), at_s[mine], values[mine]))
    return found


def _first_known(*several: FloatArray) -> FloatArray:
    return next((each for each in several if np.isfinite(each).any()), several[-1])
