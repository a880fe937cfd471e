"""The servers' state as lines over the bins of the heatmap. Pure.

A gauge is the mean of all samples in a bin. A share is a ratio of two sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.over_time.columns import FloatArray
from analysis.over_time.time_bins import Bins
from diagnosis.inputs.servers import Samples
from ui.kit import wording


@dataclass(frozen=True, slots=True)
class StateLine:
    """A quantity over time. `values` is NaN in bins without samples. Shape (bins,)."""

    name: str
    meaning: str
    values: FloatArray
    shown: Callable[[float], str]
    whole: float | None = None
    """The value that stands for 100 %, or None."""


_GAUGES: Final = (
    ("waiting", "waiting", "requests waiting in an engine, mean", wording.number, None),
    ("running", "running", "requests in an engine's batch, mean", wording.number, None),
    ("KV cache", "kv_usage_ratio", "share of blocks in use", wording.percent, 1.0),
)
_SHARES: Final = (
    (
        "cache hits",
        "prefix_cache_hits_tokens_total",
        "prefix_cache_queries_tokens_total",
        "share of prompt tokens found in the engine's cache",
    ),
    (
        "stalled",
        "stall_s_total",
        "busy_s_total",
        "share of step time that scheduled work does not explain",
    ),
)


def state_lines(engines: Samples, bins: Bins) -> list[StateLine]:
    """One line for each quantity that has samples."""
    if not len(engines):
        return []
    at = engines.at_unix_ns
    end = bins.first_unix_ns + bins.count * bins.width_ns
    inside = (at >= bins.first_unix_ns) & (at < end)
    place = bins.index(at)

    def summed(values: FloatArray, of: FloatArray) -> FloatArray:
        known = inside & np.isfinite(values) & np.isfinite(of)
        return np.bincount(place[known], values[known], minlength=bins.count).astype(np.float64)

    found = []
    for name, column, meaning, shown, whole in _GAUGES:
        values = engines.number(column)
        found.append(
            StateLine(
                name, meaning, _ratio(summed(values, values), summed(np.ones_like(values), values)),
                shown, whole,
            )
        )  # fmt: skip
    for name, part, of, meaning in _SHARES:
        parts, wholes = engines.rises(part), engines.rises(of)
        share = _ratio(summed(parts, wholes), summed(wholes, parts))
        found.append(StateLine(name, meaning, share, wording.percent, 1.0))
    return [line for line in found if np.isfinite(line.values).any()]


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))
