"""Percentiles, traffic and outcomes in each bin of a range, and their usual values.

With many requests, the values come from rollups, and percentiles are within 1 %. Rollups contain
the rows of engines. Joined requests are therefore counted only up to `MAX_JOINED` rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Engine

from analysis.counted_requests import (
    SERVER_LABELS,
    CountedAs,
    counted_as,
    read_counted_requests,
)
from analysis.over_time.columns import FloatArray, IntArray, floats, instants
from analysis.over_time.percentiles import Percentiles, per_bin
from analysis.over_time.rolled import outcomes_over_time
from analysis.over_time.rolled import per_bin as rolled_per_bin
from analysis.over_time.rows import without_ttft_of_whole_answers
from analysis.over_time.time_bins import SECOND_NS, Bins, bins_of_width, choose
from analysis.stored_data import is_simulated
from store.rollups.queries import rollups
from telemetry.requests import Outcome
from telemetry.window import Window

LATENCIES: Final = ("ttft_s", "tpot_s", "e2e_s")
COLUMNS: Final = ("received_unix_ns", "outcome", "source", "streamed", *LATENCIES)

MAX_READ: Final = 30_000
"""Requests are read one by one only up to this number, in about 0.1 s."""
MAX_JOINED: Final = 20_000
"""Rows of prefill and decode servers are joined only up to this number, in about 2 s: 15,000 rows
took 1.5 s of CPU."""

DAY_NS: Final = 86_400 * SECOND_NS
ENOUGH_SHARE: Final = 0.1
"""The default baseline needs at least this share of the range's number of requests."""
MIN_BINS: Final = 5
USUAL: Final = (0.1, 0.9)


@dataclass(frozen=True, slots=True)
class Trend:
    """The traffic and the percentiles of a range, per bin."""

    window: Window
    counted: Window
    """The time in which the counted requests were received. Rollups widen the window to whole
    buckets."""
    bins: Bins
    outcomes: Mapping[str, IntArray]
    """For each outcome, the number of requests in each bin. Shape (bins,)."""
    percentiles: Mapping[str, Percentiles]
    rolled: bool
    """Whether the percentiles come from rollups."""
    simulated: bool
    hidden: int = 0
    """Number of requests that are stored as `_other` and may match the filters."""
    counted_as: CountedAs = CountedAs.REQUESTS
    without_prefill: int = 0
    """See `CountedRequests`."""

    @property
    def number(self) -> int:
        """Number of requests."""
        return int(sum(each.sum() for each in self.outcomes.values()))

    @property
    def seen_s(self) -> FloatArray:
        """For each bin, the number of seconds during which requests were counted. Shape (bins,)."""
        edges = self.bins.first_unix_ns + np.arange(self.bins.count + 1) * self.bins.width_ns
        first, last = self.counted.from_unix_ns, self.counted.to_unix_ns
        edges = np.clip(edges, first, last)
        edges[[0, -1]] = first, last  # the nearest bin counts requests outside all bins
        seen: FloatArray = np.maximum(np.diff(edges), SECOND_NS) / SECOND_NS
        return seen

    def ended(self, *outcomes: Outcome) -> IntArray:
        """The number of requests that ended with one of these outcomes. Shape (bins,)."""
        found: IntArray = sum(
            (self.outcomes[each.value] for each in outcomes), np.zeros(self.bins.count, np.int64)
        )
        return found

    def usual(self, latency: str, quantile: str) -> tuple[float, float] | None:
        """The usual range of a percentile in seconds: 8 of 10 bins are inside it. It is None if
        there are too few bins."""
        values = self.percentiles[latency].series[quantile].value_s
        known = values[~np.isnan(values)]
        if known.size < MIN_BINS:
            return None
        low, high = np.quantile(known, USUAL)
        return float(low), float(high)


def read(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    width_ns: int | None = None,
    most: int | None = None,
) -> Trend:
    """Read a range.

    Args:
        width_ns: width of the bins, or None for a width that depends on the range.
        most: maximum number of requests to read one by one, or None for `MAX_READ` or `MAX_JOINED`.
    """
    if most is None:
        joins = counted_as(engine, window, equals) is CountedAs.JOINED
        most = MAX_JOINED if joins else MAX_READ
    whole = rollups(engine, window, equals=equals)
    if whole is not None:
        number = whole.number()
        if number > most or whole.requests_deleted_before_unix_ns() > window.from_unix_ns:
            return _rolled(engine, window, equals, _bins(window, number, width_ns))
    found = read_counted_requests(engine, window, equals=equals, columns=COLUMNS)
    table = without_ttft_of_whole_answers(found.table)
    bins = _bins(window, table.num_rows, width_ns)
    index = bins.index(instants(table, "received_unix_ns"))
    ended = np.asarray(table["outcome"].to_pylist(), dtype=object)
    return Trend(
        window,
        window,
        bins,
        {
            each.value: np.bincount(index[ended == each.value], minlength=bins.count)
            for each in Outcome
        },
        {name: per_bin(floats(table, name), index, bins.count) for name in LATENCIES},
        rolled=False,
        simulated=is_simulated(engine, window),
        counted_as=found.counted_as,
        without_prefill=found.without_prefill,
    )


def before(
    engine: Engine,
    now: Trend,
    equals: Mapping[str, str],
    baseline: Window | None = None,
    quiet_until_ns: int | None = None,
) -> Trend | None:
    """Read the baseline of a range in bins of the same width, or return None without enough
    requests.

    The baseline is the first of these that has enough requests: the baseline that the user
    selected, the same time yesterday, the previous range. A baseline must not contain an incident.
    If an incident began before the range, the previous range therefore ends at `quiet_until_ns`. A
    baseline of engine rows is not compared with joined requests.
    """
    width_ns = now.bins.width_ns
    most = None
    if now.counted_as is not CountedAs.REQUESTS:
        most = 0 if now.rolled else 2 * MAX_JOINED
    for window in [baseline] if baseline else _comparable(now.window, quiet_until_ns):
        found = read(engine, window, equals, width_ns, most)
        per_engine = [each.counted_as is CountedAs.ENGINE_ROWS for each in (now, found)]
        if per_engine[0] != per_engine[1] and not equals.keys() & set(SERVER_LABELS):
            continue
        if found.number and (baseline or found.number >= ENOUGH_SHARE * now.number):
            return found
    return None


def _comparable(window: Window, quiet_until_ns: int | None) -> Sequence[Window]:
    length_ns = window.to_unix_ns - window.from_unix_ns
    until_ns = window.from_unix_ns
    if quiet_until_ns is not None:
        until_ns = min(until_ns, quiet_until_ns)
    found = []
    for back_ns in (DAY_NS, window.to_unix_ns - until_ns):
        if length_ns <= back_ns <= window.from_unix_ns:
            found.append(Window(window.from_unix_ns - back_ns, window.to_unix_ns - back_ns))
    return found


def _bins(window: Window, requests: int, width_ns: int | None) -> Bins:
    if width_ns is None:
        return choose(window.from_unix_ns, window.to_unix_ns, requests)
    return bins_of_width(window.from_unix_ns, window.to_unix_ns, width_ns)


def _rolled(engine: Engine, window: Window, equals: Mapping[str, str], bins: Bins) -> Trend:
    kind = counted_as(engine, window, equals)
    bins, over_time = outcomes_over_time(engine, window, equals, bins)
    sums = over_time.sums([])
    outcomes = {each.value: np.zeros(bins.count, np.int64) for each in Outcome}
    steps = over_time.steps.number
    for cell, many in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True):
        name = str(over_time.groups[cell // steps][0])
        outcomes[name][min(cell % steps, bins.count - 1)] += many
    return Trend(
        window,
        over_time.plan.counted,
        bins,
        outcomes,
        {name: rolled_per_bin(engine, window, equals, name, bins) for name in LATENCIES},
        rolled=True,
        simulated=over_time.simulated,
        hidden=over_time.hidden().requests,
        counted_as=kind.in_rollups,
    )
