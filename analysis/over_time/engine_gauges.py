"""The engines' state over time: waiting requests, running requests, and KV cache in use.

A bin has the maximum of its samples, because a mean would hide a burst of a second.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analysis.over_time.columns import FloatArray, IntArray, highest_per_cell, instants, texts
from analysis.over_time.columns import floats as column_floats
from analysis.over_time.time_bins import SECOND_NS, WIDTHS_S, Bins, bins_of_width
from store.queries import sample_peaks
from telemetry.window import Window

GAUGES: Final = ("waiting", "running", "kv_usage_ratio")
COLUMNS: Final = ("replica", "engine", "at_unix_ns", *GAUGES)
MAX_LINES: Final = 6
MAX_POINTS: Final = 300


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """The lines of each gauge.

    There is one line per engine. If there are more than `MAX_LINES` engines, one line stands for
    all engines.
    """

    bins: Bins
    engines: int
    lines: dict[str, dict[str, FloatArray]]
    """For each line, the values of each gauge. A value is NaN in a bin without samples. Shape
    (bins,)."""

    @property
    def together(self) -> bool:
        """Whether each gauge has a single line for all engines."""
        return self.engines > MAX_LINES


def read_gauges(engine: Engine, window: Window, equals: Mapping[str, str]) -> pa.Table:
    """The maxima of each engine's gauges in the bins of a chart, with `COLUMNS`. Only the label
    `replica` in `equals` selects engines."""
    bins = bins_for(window.from_unix_ns, window.to_unix_ns)
    replica = {label: value for label, value in equals.items() if label == "replica"}
    return sample_peaks(engine, window, bins.first_unix_ns, bins.width_ns, GAUGES, equals=replica)


def bins_for(from_unix_ns: int, to_unix_ns: int) -> Bins:
    """The narrowest bins of a window that a chart can show."""
    length_s = (to_unix_ns - from_unix_ns) / SECOND_NS
    width_s = next(
        (width for width in WIDTHS_S if length_s / width <= MAX_POINTS),
        math.ceil(length_s / MAX_POINTS),
    )
    return bins_of_width(from_unix_ns, to_unix_ns, width_s * SECOND_NS)


def gauges_of(table: pa.Table, from_unix_ns: int, to_unix_ns: int) -> EngineGauges:
    """The lines of each gauge. `table` contains the samples, with the columns `COLUMNS`."""
    bins = bins_for(from_unix_ns, to_unix_ns)
    engines, which = _engines(table)
    index = bins.index(instants(table, "at_unix_ns"))
    by_gauge = {
        gauge: highest_per_cell(
            column_floats(table, gauge), which, index, (len(engines), bins.count)
        )
        for gauge in GAUGES
    }
    if len(engines) > MAX_LINES:
        lines = {
            f"all {len(engines)} engines": {g: _sum_of_engines(g, by_gauge[g]) for g in GAUGES}
        }
    else:
        lines = {
            name: {gauge: by_gauge[gauge][row] for gauge in GAUGES}
            for row, name in enumerate(engines)
        }
    return EngineGauges(bins, len(engines), lines)


def _engines(table: pa.Table) -> tuple[list[str], IntArray]:
    """The names of the engines, and the engine of each row.

    A replica's single engine has the replica's name.
    """
    numbers = column_floats(table, "engine")
    pairs = list(zip(texts(table, "replica"), numbers.tolist(), strict=True))
    known = sorted(set(pairs))
    place = {pair: row for row, pair in enumerate(known)}
    lone = len({replica for replica, _ in known}) == len(known)
    names = [replica if lone else f"{replica} · engine {number:.0f}" for replica, number in known]
    return names, np.array([place[pair] for pair in pairs], dtype=np.int64)


def _sum_of_engines(gauge: str, values: FloatArray) -> FloatArray:
    """One line for all engines. It has the sum of the requests, or the maximum KV cache usage."""
    silent = np.isnan(values).all(axis=0)
    filled = np.nan_to_num(values)
    joined: FloatArray = filled.max(axis=0) if gauge == "kv_usage_ratio" else filled.sum(axis=0)
    joined[silent] = np.nan
    return joined
