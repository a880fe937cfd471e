"""A grid for each measure, with a row per replica and a column per time bin. Pure.

The value of a gauge is the maximum in the bin. Gauges that count requests are summed over the
replica's engines. A counter becomes a rate per second, summed over processes, or a ratio of two
increases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.over_time.columns import FloatArray, IntArray, highest_per_cell
from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Samples

ENGINE_COLUMNS: Final = (
    *("replica", "engine", "process", "started_unix_ns", "at_unix_ns", "source"),
    *("waiting", "running", "kv_usage_ratio", "longest_step_s"),
    *("steps_total", "busy_s_total", "stall_s_total", "preemptions_total"),
    *("prefill_tokens_total", "scheduled_prefill_tokens_total", "decode_tokens_total"),
    *("prefix_cache_queries_tokens_total", "prefix_cache_hits_tokens_total"),
)
GPU_COLUMNS: Final = (
    *("replica", "gpu", "at_unix_ns", "simulated"),
    *("dram_bandwidth_ratio", "sm_clock_hz", "sm_clock_max_hz", "throttle_reasons"),
)

WAITED: Final = "waited"
"""The key of a grid: the share of samples in which requests were queued."""

Grid = FloatArray
"""The values of one measure, or NaN without a sample. Shape (replicas, bins)."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """The samples. The line of a sample is the engine process that sent it."""

    samples: Samples
    line: IntArray
    replica: IntArray
    """For each line, the row of its replica in the grids. It is −1 if the replica is not selected.
    Shape (lines,)."""
    engine: IntArray
    """For each line, the index of its engine among the engines of all replicas. Shape (lines,)."""


def engine_grids(
    table: pa.Table, replicas: Sequence[str], index: IntArray, bins: int
) -> dict[str, Grid]:
    """The grid of each engine measure.

    Args:
        table: has the columns `ENGINE_COLUMNS`.
        replicas: the rows of a grid.
        index: the bin of each sample. Shape (samples,).
    """
    if not table.num_rows:
        return {}
    of = _lines(table, replicas)
    samples = of.samples

    def most(name: str, add: bool) -> Grid:
        return _maximum_per_bin(of, samples.number(name), index, bins, len(replicas), add)

    def rate(name: str) -> Grid:
        return _rate(of, samples.rises(name), samples.spans_s, index, bins, len(replicas))

    def ratio(part: str, whole: str) -> Grid:
        above, below = samples.rises(part), samples.rises(whole)
        both = np.isfinite(above) & np.isfinite(below)
        rows = of.replica[of.line]
        return _ratio(
            _sums(rows, index, np.where(both, above, np.nan), len(replicas), bins),
            _sums(rows, index, np.where(both, below, np.nan), len(replicas), bins),
        )

    def share_above_none(name: str) -> Grid:
        values = samples.number(name)
        known = np.where(np.isfinite(values), 1.0, np.nan)
        rows = of.replica[of.line]
        return _ratio(
            _sums(rows, index, known * (values > 0), len(replicas), bins),
            _sums(rows, index, known, len(replicas), bins),
        )

    # Without the step ledger, prompt tokens are counted only when a prefill is complete.
    scheduled = rate("scheduled_prefill_tokens_total")
    without = np.isnan(scheduled).all(axis=1, keepdims=True)
    return {
        "queue": most("waiting", add=True),
        WAITED: share_above_none("waiting"),
        "running": most("running", add=True),
        "kv": most("kv_usage_ratio", add=False),
        "hits": ratio("prefix_cache_hits_tokens_total", "prefix_cache_queries_tokens_total"),
        "preemptions": rate("preemptions_total"),
        "step": ratio("busy_s_total", "steps_total"),
        "longest": most("longest_step_s", add=False),
        "tokens": rate("decode_tokens_total"),
        "prefill": np.where(without, rate("prefill_tokens_total"), scheduled),
        "stall": ratio("stall_s_total", "busy_s_total"),
    }


def gpu_grids(
    table: pa.Table, replicas: Sequence[str], index: IntArray, bins: int
) -> dict[str, Grid]:
    """The mean bandwidth and the lowest clock of the replicas' GPUs.

    `table` has the columns `GPU_COLUMNS`. `index` is the bin of each sample. Shape (samples,).
    """
    if not table.num_rows:
        return {}
    samples = samples_of(table)
    rows = _row_of_samples(samples, replicas)
    bandwidth = samples.number("dram_bandwidth_ratio")
    known = np.isfinite(bandwidth).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        clock = samples.number("sm_clock_hz") / samples.number("sm_clock_max_hz")
    lowest = np.full((len(replicas), bins), np.inf)
    there = np.isfinite(clock) & (rows >= 0)
    np.minimum.at(lowest, (rows[there], index[there]), clock[there])
    lowest[np.isinf(lowest)] = np.nan
    return {
        "bandwidth": _ratio(
            _sums(rows, index, bandwidth, len(replicas), bins),
            _sums(rows, index, np.where(known > 0, known, np.nan), len(replicas), bins),
        ),
        "clock": lowest,
    }


def _lines(table: pa.Table, replicas: Sequence[str]) -> _Lines:
    samples = samples_of(table)
    rows = _row_of_samples(samples, replicas)
    engine = samples.number("engine").astype(np.int64)
    process = samples.number("process").astype(np.int64)
    # numpy compares rows of several columns slowly, so each (replica, engine) becomes one number.
    of_engine = _numbered(_numbered(rows) * (engine.max() + 1) + engine)
    line = _numbered(of_engine * len(samples) + _numbered(process))
    replica = np.full(int(line.max()) + 1, -1, dtype=np.int64)
    engines = replica.copy()
    replica[line], engines[line] = rows, of_engine
    return _Lines(samples, line, replica, engines)


def _numbered(keys: IntArray) -> IntArray:
    found: IntArray = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found


def _row_of_samples(samples: Samples, replicas: Sequence[str]) -> IntArray:
    """The row of each sample's replica, or −1 if the replica is not selected."""
    place = {name: row for row, name in enumerate(replicas)}
    of_code = np.array([*(place.get(value, -1) for value in samples.replica.values), -1])
    found: IntArray = of_code[samples.replica.codes].astype(np.int64)
    return found


def _maximum_per_bin(
    of: _Lines, values: FloatArray, index: IntArray, bins: int, replicas: int, add: bool
) -> Grid:
    engines = int(of.engine.max()) + 1
    highest = highest_per_cell(values, of.engine[of.line], index, (engines, bins))
    replica_of_engine = np.full(engines, -1, dtype=np.int64)
    replica_of_engine[of.engine] = of.replica
    grid = np.full((replicas, bins), np.nan)
    for engine, replica in enumerate(replica_of_engine.tolist()):
        if replica >= 0:
            join = np.add if add else np.fmax
            mine, new = grid[replica], highest[engine]
            grid[replica] = np.where(
                np.isnan(mine), new, np.where(np.isnan(new), mine, join(mine, new))
            )
    return grid


def _rate(
    of: _Lines,
    rises: FloatArray,
    spans_s: FloatArray,
    index: IntArray,
    bins: int,
    replicas: int,
) -> Grid:
    known = np.isfinite(rises) & np.isfinite(spans_s)
    lines = of.replica.size
    per_s = _ratio(
        _sums(of.line, index, np.where(known, rises, np.nan), lines, bins),
        _sums(of.line, index, np.where(known, spans_s, np.nan), lines, bins),
    )
    rows = np.repeat(of.replica, bins)
    columns = np.tile(np.arange(bins, dtype=np.int64), lines)
    return _sums(rows, columns, per_s.ravel(), replicas, bins)


def _sums(rows: IntArray, columns: IntArray, values: FloatArray, height: int, width: int) -> Grid:
    known = np.isfinite(values) & (rows >= 0)
    cells = rows[known] * width + columns[known]
    size = height * width
    sums = np.bincount(cells, values[known], minlength=size)
    number = np.bincount(cells, minlength=size)
    found: Grid = np.where(number > 0, sums, np.nan).reshape(height, width)
    return found


def _ratio(above: Grid, below: Grid) -> Grid:
    found = np.full(above.shape, np.nan)
    np.divide(above, below, out=found, where=below > 0)
    return found
