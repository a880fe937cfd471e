"""Sum and merge rollups in memory, as arrays with one element per cell. Pure.

In a bucket, a cell contains the requests of one label set (one value for each label). In a query's
result, a cell contains the requests of one group in one time step. Buckets can be merged in any
order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.rollups.tables import QUANTITIES
from telemetry.quantiles import nearest_rank
from telemetry.requests import LATENCIES
from telemetry.sketches import HIGHEST, IntArray, bins_of, estimate_s

FloatArray = NDArray[np.float64]
Ranks = Callable[[IntArray], IntArray]
"""A function that maps the number of durations in each cell (cells,) to the wanted ranks (cells,
ranks). The smallest duration has rank 1. Ranks below 1, or above the number of durations, have no
duration."""

_DENSE: Final = 20_000_000
_DENSE_EACH: Final = 8
"""If a dense array would have more elements than this per summed bin, sorting is faster."""


@dataclass(frozen=True, slots=True)
class RollupSums:
    """The facts (count, sum, minimum, maximum) of each quantity in each cell.

    `facts[quantity]` has the columns `tables.FACTS`: (cells, 4). A cell without values has the
    facts (0, 0, ∞, −∞). Only latencies have a minimum and a maximum.
    """

    cells: IntArray
    requests: IntArray
    facts: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class Sketches:
    """The sketches (histograms) of one latency, concatenated. `cells[i]` has `sizes[i]` bins."""

    cells: IntArray
    sizes: IntArray
    bins: IntArray
    counts: IntArray


@dataclass(frozen=True, slots=True)
class RollupBucket:
    """The rollup of a minute or an hour. A cell is identified by the number of its label set
    (`number_of`)."""

    sums: Mapping[int, RollupSums]
    sketches: Mapping[tuple[str, int], Sketches]


def merged(several: Sequence[RollupBucket]) -> RollupBucket:
    """Merge buckets, such as the buckets of several shards or of the minutes of an hour.

    The result has only the groupings that all buckets have. Older versions built fewer groupings.
    """
    sums, sketches = {}, {}
    for grouping in set.intersection(*(set(each.sums) for each in several)):
        parts = end_to_end_sums([each.sums[grouping] for each in several])
        sums[grouping] = add_sums(parts, parts.cells)
    for key in {key for each in several for key in each.sketches if key[1] in sums}:
        together = end_to_end_sketches(
            [each.sketches[key] for each in several if key in each.sketches]
        )
        sketches[key] = add_sketches(together, together.cells)
    return RollupBucket(sums, sketches)


@dataclass(frozen=True, slots=True)
class KnownValues:
    """The row indices of the requests that have a value, and their values or bins."""

    rows: IntArray
    values: FloatArray | IntArray


def known_values(table: pa.Table, quantities: Sequence[str]) -> dict[str, KnownValues]:
    """The known values of each quantity, including negative values."""
    found = {}
    for name in quantities:
        values = _floats(table, name)
        rows = np.flatnonzero(~np.isnan(values))
        found[name] = KnownValues(rows, values[rows])
    return found


def known_bins(table: pa.Table, latencies: Sequence[str]) -> dict[str, KnownValues]:
    """The known bins of each latency. Negative values, and values above the highest bin, are
    left out."""
    found = {}
    for name in latencies:
        values = _floats(table, name)
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero((values >= 0) & (values <= estimate_s(HIGHEST)))
        found[name] = KnownValues(rows, bins_of(values[rows]))
    return found


def sums_of(table: pa.Table, cells: IntArray, quantities: Sequence[str] = QUANTITIES) -> RollupSums:
    """Sum the quantities of the requests in each cell. Negative values are included."""
    found, place = np.unique(cells, return_inverse=True)
    return sums_at(known_values(table, quantities), found, place)


def sums_at(values: Mapping[str, KnownValues], cells: IntArray, place: IntArray) -> RollupSums:
    """Sum the quantities of requests.

    Args:
        cells: distinct and sorted.
        place: index in `cells` of each request's cell: (requests,).
    """
    facts = {}
    for name, known in values.items():
        where = place[known.rows]
        fact = nothing(cells.size)
        fact[:, 0] = np.bincount(where, minlength=cells.size)
        fact[:, 1] = np.bincount(where, known.values, minlength=cells.size)
        if name in LATENCIES:
            np.minimum.at(fact[:, 2], where, known.values)
            np.maximum.at(fact[:, 3], where, known.values)
        facts[name] = fact
    return RollupSums(cells, np.bincount(place, minlength=cells.size), facts)


def sketches_of(table: pa.Table, cells: IntArray, latency: str) -> Sketches:
    """Build the sketch of a latency for each cell. See `known_bins`."""
    found, place = np.unique(cells, return_inverse=True)
    return sketches_at(known_bins(table, (latency,))[latency], found, place)


def sketches_at(bins: KnownValues, cells: IntArray, place: IntArray) -> Sketches:
    """Build the sketch of a latency for each cell. See `sums_at`."""
    return _merge_equal_bins(
        cells, place[bins.rows], bins.values, np.ones(bins.rows.size, np.int64)
    )


def add_sums(several: RollupSums, cells: IntArray) -> RollupSums:
    """Move the sums of each cell i to the cell `cells[i]`, and add them there."""
    found, place = np.unique(cells, return_inverse=True)
    requests = np.zeros(found.size, np.int64)
    np.add.at(requests, place, several.requests)
    facts = {}
    for name, before in several.facts.items():
        fact = nothing(found.size)
        np.add.at(fact[:, 0], place, before[:, 0])
        np.add.at(fact[:, 1], place, before[:, 1])
        if name in LATENCIES:
            np.minimum.at(fact[:, 2], place, before[:, 2])
            np.maximum.at(fact[:, 3], place, before[:, 3])
        facts[name] = fact
    return RollupSums(found, requests, facts)


def add_sketches(several: Sketches, cells: IntArray) -> Sketches:
    """Move each sketch i to the cell `cells[i]`, and merge it there."""
    found, place = np.unique(cells, return_inverse=True)
    return _merge_equal_bins(found, np.repeat(place, several.sizes), several.bins, several.counts)


def end_to_end_sums(several: Sequence[RollupSums]) -> RollupSums:
    """Concatenate sums. If two sums have the same cell, the result contains both."""
    names = several[0].facts if several else {}
    return RollupSums(
        _concatenate([each.cells for each in several]),
        _concatenate([each.requests for each in several]),
        {name: np.concatenate([each.facts[name] for each in several]) for name in names},
    )


def end_to_end_sketches(several: Sequence[Sketches]) -> Sketches:
    """Concatenate sketches. If two sketches have the same cell, the result contains both."""
    return Sketches(
        *(
            _concatenate([getattr(each, name) for each in several])
            for name in ("cells", "sizes", "bins", "counts")
        )
    )


def only_sketches(several: Sketches, wanted: NDArray[np.bool_]) -> Sketches:
    """Select the sketches for which `wanted` is true."""
    if wanted.all():
        return several
    place = places_of_bins(several.sizes, wanted)
    return Sketches(
        several.cells[wanted], several.sizes[wanted], several.bins[place], several.counts[place]
    )


def places_of_bins(sizes: IntArray, wanted: NDArray[np.bool_]) -> IntArray:
    """The positions of the wanted sketches' bins in the array of all bins, ascending."""
    chosen = sizes[wanted].astype(np.int64)
    starts = (np.cumsum(sizes, dtype=np.int64) - sizes)[wanted]
    before = np.cumsum(chosen) - chosen
    return np.repeat(starts - before, chosen) + np.arange(int(chosen.sum()))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The durations with the wanted ranks, exact to within 1 %."""

    number: IntArray
    value_s: FloatArray
    """Durations in seconds, or NaN in a cell without durations: (cells, ranks)."""


def ranked(several: Sketches, cells: IntArray, number: int, ranks: Ranks) -> Quantiles:
    """The durations with given ranks, for each cell.

    Args:
        cells: the index of each sketch's cell.
        number: the number of cells. Sketches with a higher index are left out.
    """
    low = int(several.bins.min(initial=0))
    span = int(several.bins.max(initial=0)) - low + 1
    at = np.repeat(cells * span - low, several.sizes)
    at += several.bins
    if number * span <= _DENSE:
        sums = np.bincount(at, several.counts, minlength=number * span)[: number * span]
        at = np.flatnonzero(sums)
        counts = sums[at].astype(np.int64)
    else:
        inside = at < number * span
        at, counts = _added_up(at[inside], several.counts[inside])
    below = np.concatenate([[0], np.cumsum(counts)])
    starts = np.searchsorted(at, np.arange(number + 1) * span)
    before, total = below[starts[:-1]], np.diff(below[starts])
    wanted = ranks(total)
    there = (wanted >= 1) & (wanted <= total[:, None])
    values = np.full(wanted.shape, np.nan)
    place = np.searchsorted(below[1:], (before[:, None] + wanted)[there])
    values[there] = np.array([estimate_s(low + each) for each in range(span)])[at[place] % span]
    return Quantiles(total, values)


def nearest_ranks(shares: Sequence[float]) -> Ranks:
    """A function that computes the rank of each quantile, as in `telemetry.quantiles`.

    Raises:
        ValueError: a quantile is outside (0, 1).
    """
    for share in shares:
        nearest_rank(1, share)
    parts = [Fraction(str(share)).as_integer_ratio() for share in shares]
    return lambda total: np.stack([-(-top * total // under) for top, under in parts], axis=1)


def _merge_equal_bins(
    cells: IntArray, place: IntArray, bins: "IntArray | FloatArray", counts: IntArray
) -> Sketches:
    """Merge equal bins of each cell, and sort the bins. Cells without bins are left out.

    Args:
        cells: distinct and sorted.
        place: index in `cells` of each bin's cell: (bins,). `bins` and `counts` have the same
            shape.
    """
    if place.size == 0:
        none = np.zeros(0, np.int64)
        return Sketches(none, none, none, none)
    low = int(bins.min())
    span = int(bins.max()) - low + 1
    at, added = _added_up(place * span + (bins.astype(np.int64) - low), counts)
    sizes = np.bincount(at // span, minlength=cells.size)
    there = sizes > 0
    return Sketches(cells[there], sizes[there], at % span + low, added)


def _added_up(at: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    span = int(at.max(initial=-1)) + 1
    if span <= _DENSE_EACH * at.size:
        dense = np.bincount(at, counts, span)
        found = np.flatnonzero(dense)
        return found, dense[found].astype(np.int64)
    found, which = np.unique(at, return_inverse=True)
    return found, np.bincount(which, counts, found.size).astype(np.int64)


def nothing(cells: int) -> FloatArray:
    """The initial facts of cells that have no values yet."""
    facts = np.empty((cells, 4))
    facts[:] = (0.0, 0.0, np.inf, -np.inf)
    return facts


def _concatenate(several: Sequence[IntArray]) -> IntArray:
    if len(several) == 1:  # do not copy one array of 100 MB
        return several[0]
    return np.concatenate(several) if several else np.zeros(0, np.int64)


def _floats(table: pa.Table, name: str) -> FloatArray:
    values: FloatArray = table[name].cast(pa.float64(), safe=False).to_numpy()
    return values
