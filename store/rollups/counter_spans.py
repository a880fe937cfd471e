"""Read spans of engines' and GPUs' counters from samples, and join spans to longer spans.

A span is a time range of one engine or GPU, with the first and the last value of each counter. It
ends before a gap that is too long to be billed. It also ends before a counter appears, disappears
or decreases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, and_, func, select

from store.connections import reading
from store.rollups.marks import SECOND_NS
from store.rollups.sample_tables import SampleKind
from store.rollups.tables import MINUTE_S
from telemetry.billing_data import GAP_S
from telemetry.counter_series import CounterSeries, FloatArray, IntArray

_MINUTE_NS: Final = MINUTE_S * SECOND_NS


@dataclass(frozen=True, slots=True)
class CounterSpans:
    """Spans of counters, in any order.

    Span i belongs to the engine or GPU `owners[which[i]]` with the text `about[which[i]]`
    (`SampleKind.about`). `first` and `last` are the counters' values, or NaN if not reported.
    """

    owners: Sequence[tuple[Any, ...]]
    about: Sequence[str | None]
    which: IntArray
    simulated: NDArray[np.bool_]
    bucket_unix_s: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first: Mapping[str, FloatArray]
    last: Mapping[str, FloatArray]
    means: Mapping[str, FloatArray]

    def only(self, entries: NDArray[Any]) -> "CounterSpans":
        """Select spans by a mask or by indices."""
        return CounterSpans(
            self.owners,
            self.about,
            self.which[entries],
            self.simulated[entries],
            self.bucket_unix_s[entries],
            self.first_unix_ns[entries],
            self.last_unix_ns[entries],
            {name: each[entries] for name, each in self.first.items()},
            {name: each[entries] for name, each in self.last.items()},
            {name: each[entries] for name, each in self.means.items()},
        )


def of_samples(engine: Engine, kind: SampleKind, from_unix_s: int, to_unix_s: int) -> CounterSpans:
    """Read the spans of [from, to) from samples: one per minute of each engine or GPU."""
    samples = kind.samples
    at = samples.c.at_unix_ns
    # Use modulo, because databases round integer divisions differently.
    minute = at - at % _MINUTE_NS
    key = [samples.c[name] for name in kind.key]
    # Use no SQL aliases, because ClickHouse would confuse an alias with a column of the same name.
    totals = [each(samples.c[name]) for name in kind.totals for each in (func.min, func.max)]
    means = [func.avg(samples.c[name]) for name in kind.means]
    statement = (
        select(
            *key,
            func.max(samples.c[kind.about]),
            samples.c.simulated,
            func.min(at),
            func.max(at),
            *totals,
            *means,
        )
        .where(and_(at >= from_unix_s * SECOND_NS, at < to_unix_s * SECOND_NS))
        .group_by(*key, samples.c.simulated, minute)
    )
    with reading(engine) as connection:
        rows = connection.execute(statement).all()
    known = SpanOwners()
    width = len(kind.key)
    which = [known.place(tuple(row[:width]), row[width]) for row in rows]
    numbers = _numbers([row[width + 4 :] for row in rows], len(totals) + len(means))
    first_unix_ns = np.array([row[width + 2] for row in rows], np.int64)
    return CounterSpans(
        known.owners,
        known.about,
        np.array(which, np.int64),
        np.array([row[width + 1] for row in rows], bool),
        first_unix_ns // _MINUTE_NS * MINUTE_S,
        first_unix_ns,
        np.array([row[width + 3] for row in rows], np.int64),
        {name: numbers[:, 2 * place] for place, name in enumerate(kind.totals)},
        {name: numbers[:, 2 * place + 1] for place, name in enumerate(kind.totals)},
        {name: numbers[:, len(totals) + place] for place, name in enumerate(kind.means)},
    )


class SpanOwners:
    """Assigns a number to each engine or GPU, and stores their texts (`SampleKind.about`)."""

    def __init__(self) -> None:
        self.owners: list[tuple[Any, ...]] = []
        self.about: list[str | None] = []
        self._places: dict[tuple[Any, ...], int] = {}

    def place(self, owner: tuple[Any, ...], about: str | None) -> int:
        """The number of an engine or GPU. A new engine or GPU gets the next number."""
        found = self._places.setdefault(owner, len(self.owners))
        if found == len(self.owners):
            self.owners.append(owner)
            self.about.append(about)
        elif self.about[found] is None:
            self.about[found] = about
        return found


def end_to_end(several: Sequence[CounterSpans], kind: SampleKind) -> CounterSpans:
    """Concatenate spans."""
    known = SpanOwners()
    places = [
        np.array([known.place(*each) for each in zip(one.owners, one.about, strict=True)], np.int64)
        for one in several
    ]
    integers = [np.zeros(0, np.int64)]
    floats = [np.zeros(0)]
    return CounterSpans(
        known.owners,
        known.about,
        np.concatenate(integers + [at[one.which] for at, one in zip(places, several, strict=True)]),
        np.concatenate([np.zeros(0, bool)] + [one.simulated for one in several]),
        np.concatenate(integers + [one.bucket_unix_s for one in several]),
        np.concatenate(integers + [one.first_unix_ns for one in several]),
        np.concatenate(integers + [one.last_unix_ns for one in several]),
        {n: np.concatenate(floats + [one.first[n] for one in several]) for n in kind.totals},
        {n: np.concatenate(floats + [one.last[n] for one in several]) for n in kind.totals},
        {n: np.concatenate(floats + [one.means[n] for one in several]) for n in kind.means},
    )


def joined(parts: CounterSpans, bucket_unix_s: int) -> CounterSpans:
    """Join successive spans of an engine or GPU in a bucket. A gap or a counter's reset separates
    spans."""
    if not parts.which.size:
        return parts
    series = CounterSeries.of(parts.which, parts.first_unix_ns, parts.last_unix_ns, GAP_S)
    parts = parts.only(series.order)
    apart = ~series.follows[1:]
    for name, first in parts.first.items():
        last = parts.last[name]
        apart |= np.isnan(first[1:]) != np.isnan(first[:-1])
        apart |= first[1:] < last[:-1]
    starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    ends = np.concatenate([starts[1:], [parts.which.size]])
    heads, tails = parts.only(starts), parts.only(ends - 1)
    return CounterSpans(
        parts.owners,
        parts.about,
        heads.which,
        heads.simulated,
        np.full(starts.size, bucket_unix_s, np.int64),
        heads.first_unix_ns,
        tails.last_unix_ns,
        heads.first,
        tails.last,
        {name: _latest(each, starts, ends) for name, each in parts.means.items()},
    )


def _latest(values: FloatArray, starts: IntArray, ends: IntArray) -> FloatArray:
    """The last known value in each range, or NaN if there is no known value."""
    places = np.arange(values.size)
    known = np.maximum.accumulate(np.where(np.isnan(values), -1, places))[ends - 1]
    return np.where(known >= starts, values[known], np.nan)


def _numbers(rows: Sequence[Sequence[Any]], columns: int) -> FloatArray:
    values = [[np.nan if each is None else float(each) for each in row] for row in rows]
    return np.array(values, np.float64).reshape(len(rows), columns)
