"""Read rollups and the slowest requests, for ranges with too many requests to read.

Percentiles are within 1 % of the exact values. The slowest requests are exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analysis.over_time import phases
from analysis.over_time.columns import FloatArray, IntArray
from analysis.over_time.percentiles import (
    QUANTILES,
    PercentileEstimate,
    Percentiles,
    PercentileSeries,
    ranks_of,
)
from analysis.over_time.time_bins import SECOND_NS, Bins, bins_of_width, choose
from store.queries import request_table
from store.rollups.buckets import RollupSums
from store.rollups.queries import Rollups, rollups
from telemetry.requests import Outcome
from telemetry.window import Window

MAX_READ: Final = 100_000
"""A page reads requests one by one only up to this number, in about a second."""

_MAX_MINUTES: Final = 100
"""Maximum number of minutes to read in a search. Rollups are kept longer than requests, so the
requests of many minutes may be deleted."""

ROWS: Final = 25
"""Number of the slowest requests to read."""

_MINUTE_NS: Final = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Rolled:
    """The counts, means and percentiles of a range, and the slowest requests."""

    latency: str
    requests: int
    bins: Bins
    percentiles: Percentiles
    p99: Mapping[str, PercentileEstimate]
    """For each latency's column, the P99 over the whole range."""
    means: phases.Matrix
    """Mean seconds of each layer in each bin, or NaN for empty bins. Shape (bins, layers)."""
    number: IntArray
    """Number of requests in each bin. Shape (bins,)."""
    outcomes: Mapping[str, int]
    simulated: bool
    slowest: pa.Table
    hidden: int
    """Number of requests that are stored as `_other` and may match the filters."""


def read_rolled(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    latency: str,
    columns: Sequence[str],
) -> Rolled | None:
    """Read a range from rollups, or return None if the page must read the requests.

    The page must read the requests if there are no rollups, or if few requests exist and all are
    still stored. `columns` are the columns to read of the slowest requests.
    """
    whole = rollups(engine, window, equals=equals)
    if whole is None:
        return None
    requests = whole.number()
    gone = whole.requests_deleted_before_unix_ns() > window.from_unix_ns
    if not requests or (requests <= MAX_READ and not gone):
        return None
    bins = choose(window.from_unix_ns, window.to_unix_ns, requests)
    bins, over_time = outcomes_over_time(engine, window, equals, bins)
    sums = over_time.sums(phases.COLUMNS)
    means, number = _means(sums, over_time.steps.number, bins.count)
    outcomes = {outcome.value: 0 for outcome in Outcome}
    for cell, many in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True):
        outcomes[str(over_time.groups[cell // over_time.steps.number][0])] += many
    return Rolled(
        latency,
        int(number.sum()),
        bins,
        per_bin(engine, window, equals, latency, bins),
        {each: _estimate(engine, window, equals, each) for each in ("ttft_s", "e2e_s")},
        means,
        number,
        outcomes,
        over_time.simulated,
        _slowest(engine, window, equals, latency, columns),
        over_time.hidden().requests,
    )


def outcomes_over_time(
    engine: Engine, window: Window, equals: Mapping[str, str], bins: Bins
) -> tuple[Bins, Rollups]:
    """Bins of whole minutes, and for each outcome its rollups. The database must have rollups."""
    if bins.width_ns % _MINUTE_NS:
        bins = bins_of_width(window.from_unix_ns, window.to_unix_ns, _MINUTE_NS)
    found = rollups(
        engine,
        window,
        by=("outcome",),
        equals=equals,
        step_s=bins.width_ns // SECOND_NS,
        first_unix_s=bins.first_unix_ns // SECOND_NS,
    )
    assert found is not None
    return bins, found


def _means(sums: RollupSums, steps: int, bins: int) -> tuple[phases.Matrix, IntArray]:
    """Return each bin's mean seconds per layer and its number of requests.

    Unknown phases count as 0.
    """
    at = np.minimum(sums.cells % steps, bins - 1)
    number = np.bincount(at, sums.requests, minlength=bins).astype(np.int64)
    mean = {
        name: np.bincount(at, facts[:, 1], minlength=bins) / np.maximum(number, 1)
        for name, facts in sums.facts.items()
    }
    means = phases.layers(pa.table(mean))
    means[number == 0] = np.nan
    return means, number


def _labels_to_omit(latency: str) -> dict[str, str]:
    """Labels whose requests a latency's percentiles exclude, such as "not streamed" for TTFT."""
    return {"streamed": "false"} if latency == "ttft_s" else {}


def per_bin(
    engine: Engine, window: Window, equals: Mapping[str, str], latency: str, bins: Bins
) -> Percentiles:
    """The percentiles of each bin, within 1 %. Bins are whole minutes. The database must have
    rollups."""
    found = rollups(
        engine,
        window,
        equals=equals,
        unless=_labels_to_omit(latency),
        step_s=bins.width_ns // SECOND_NS,
        first_unix_s=bins.first_unix_ns // SECOND_NS,
    )
    assert found is not None
    quantiles = found.quantiles(latency, _ranks)
    values = np.full((bins.count, 3 * len(QUANTILES)), np.nan)
    number = np.zeros(bins.count, np.int64)
    both = min(bins.count, quantiles.number.size)  # 0 if there are no requests
    values[:both], number[:both] = quantiles.value_s[:both], quantiles.number[:both]
    return Percentiles(
        number,
        {
            name: PercentileSeries(q, values[:, 3 * i], values[:, 3 * i + 1], values[:, 3 * i + 2])
            for i, (name, q) in enumerate(QUANTILES.items())
        },
    )


def _ranks(number: IntArray) -> IntArray:
    """The ranks of each percentile and of its confidence interval, or 0 for too few requests."""
    columns = []
    for q in QUANTILES.values():
        ranks = np.stack(ranks_of(number, q), axis=1)
        enough = (ranks[:, 1] >= 1) & (ranks[:, 2] <= number)
        columns.append(np.where(enough[:, None], ranks, 0))
    return np.concatenate(columns, axis=1)


def _estimate(
    engine: Engine, window: Window, equals: Mapping[str, str], latency: str
) -> PercentileEstimate:
    found = rollups(engine, window, equals=equals, unless=_labels_to_omit(latency))
    assert found is not None
    quantiles = found.quantiles(latency, _ranks)
    if not quantiles.number.size:
        return PercentileEstimate(0, None, None, None)
    place = 3 * list(QUANTILES).index("p99")
    value, low, high = (
        None if np.isnan(each) else float(each) for each in quantiles.value_s[0, place : place + 3]
    )
    return PercentileEstimate(int(quantiles.number[0]), value, low, high)


def _slowest(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    latency: str,
    columns: Sequence[str],
) -> pa.Table:
    """The slowest requests, from the minutes with the highest latencies."""
    found = rollups(engine, window, equals=equals, unless=_labels_to_omit(latency), step_s=60)
    assert found is not None
    sums = found.sums([latency])
    greatest = sums.facts[latency][:, 3]
    picks: tuple[dict[str, str | None], ...] = ({},)
    if _labels_to_omit(latency):
        picks = ({"streamed": "true"}, {"streamed": None})
    tables: list[pa.Table] = []
    slowest: FloatArray = np.zeros(0)
    for place in np.argsort(-greatest, kind="stable").tolist():
        if slowest.size >= ROWS and greatest[place] < slowest[ROWS - 1]:
            break
        start_ns = (found.steps.first_unix_s + int(sums.cells[place]) * 60) * SECOND_NS
        minute = Window(
            max(window.from_unix_ns, start_ns), min(window.to_unix_ns, start_ns + _MINUTE_NS)
        )
        for pick in picks:
            part = request_table(
                engine,
                minute,
                equals={**equals, **pick},
                columns=columns,
                order_by=f"-{latency}",
                limit=ROWS,
            )
            tables.append(part)
            values = part[latency].drop_null().to_numpy()
            slowest = np.sort(np.concatenate([slowest, values]))[::-1][:ROWS]
        if len(tables) >= _MAX_MINUTES:
            break
    if not tables:
        return request_table(engine, window, columns=columns, limit=0)
    return pa.concat_tables(tables)
