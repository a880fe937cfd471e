"""Histograms with one count for each cell (`histogram_cells`), and their text and protobuf."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar as LibraryExemplar
from prometheus_client.utils import floatToGoString

from exporters.definitions.series_types import REQUEST_LABELS, LatencyHistogram
from exporters.format import protobuf
from exporters.format.histogram_cells import FloatArray, HistogramCells, IntArray, cells, matrix
from exporters.format.label_cache import LabelCache, Labels
from exporters.format.text import head, labels_text

Exemplar = tuple[str, float, float]
"""The trace id (hex) of a request in a bucket, its latency in seconds, and its end in unix seconds.
It is a plain tuple, because a tuple is created faster."""


@dataclass(slots=True)
class HistogramCounts:
    """The counts of one histogram."""

    cells: HistogramCells
    counts: "array[int]"
    sum_s: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)

    def add(self, observed: "ObservedLatencies") -> None:
        """Add the counts of `observed`. The caller sets the exemplars."""
        counts = np.frombuffer(self.counts, np.int64)
        counts += observed.counts
        self.sum_s += observed.sum_s

    def copy(self) -> "HistogramCounts":
        """Return a copy."""
        return HistogramCounts(self.cells, self.counts[:], self.sum_s, self.exemplars.copy())


def distribution(of: LatencyHistogram) -> HistogramCounts:
    """A histogram without observations."""
    made = cells(of.bounds_s)
    return HistogramCounts(made, made.none())


class ObservedLatencies(NamedTuple):
    """New latencies for one histogram."""

    at: int
    counts: IntArray
    sum_s: float
    latest: dict[int, int]
    """The position in `values_s` of the last new latency of each classic bucket."""


def observed(
    of: HistogramCells, place: IntArray, values_s: FloatArray
) -> Iterator[ObservedLatencies]:
    """Count the latencies of many requests at once.

    Args:
        of: the cells of the histograms.
        place: (n,) the index of each latency's histogram.
        values_s: (n,) latencies, without NaN.
    """
    numbers, which = np.unique(place, return_inverse=True)
    found, width, buckets = of.of_column(values_s), len(of.buckets), len(of.ends)
    counts = np.bincount(which * width + found, minlength=numbers.size * width)
    sums_s = np.bincount(which, values_s, numbers.size).tolist()
    latest = np.full((numbers.size, buckets), -1)
    latest[which, np.array(of.buckets)[found]] = np.arange(values_s.size)
    for row, at in enumerate(numbers.tolist()):
        [filled] = np.nonzero(latest[row] >= 0)
        yield ObservedLatencies(
            at,
            counts[row * width : (row + 1) * width],
            sums_s[row],
            dict(zip(filled.tolist(), latest[row, filled].tolist(), strict=True)),
        )


class _Bounds(NamedTuple):
    texts: tuple[str, ...]
    encoded: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Distributions:
    """Histograms of one latency, for each model and replica."""

    of: LatencyHistogram
    values: Mapping[tuple[str, str], HistogramCounts]
    created_unix_s: float
    """The time when the counts started."""

    @property
    def name(self) -> str:
        """The family's name."""
        return self.of.name

    @property
    def series(self) -> int:
        """The number of series in the text format: one for each bucket, one for the sum and one for
        the count."""
        return len(self.values) * (len(self.of.bounds_s) + 3)

    def text(self, openmetrics: bool) -> str:
        """The family in the text format."""
        output, lines = [head(self.name, self.of.help, "histogram", openmetrics)], _lines(self.of)
        for (pair, each), cumulative in zip(self.values.items(), self._cumulative(), strict=True):
            buckets: list[int | str] = [*cumulative]
            if openmetrics:
                for place, (trace_id, value_s, at_s) in each.exemplars.items():
                    # The numbers are rounded, because writing all digits takes three times as long.
                    buckets[place] = (
                        f'{cumulative[place]} # {{trace_id="{trace_id}"}} {value_s:.9g} {at_s:.3f}'
                    )
            output.append(lines[pair] % (*buckets, cumulative[-1], each.sum_s))
        return "".join(output)

    def protobuf(self) -> bytes:
        """The family in protobuf, with the same counts in classic and native buckets."""
        bounds = _bounds(self.of.bounds_s).encoded
        sparse = protobuf.native(
            cells(self.of.bounds_s),
            matrix(each.counts for each in self.values.values()),
            self.created_unix_s,
        )
        metrics = [
            protobuf.histogram(
                protobuf.label_pairs(REQUEST_LABELS, pair),
                protobuf.total(cumulative[-1], each.sum_s),
                protobuf.classic(
                    bounds,
                    cumulative,
                    ((place, protobuf.exemplar(*one)) for place, one in each.exemplars.items()),
                ),
                native,
            )
            for (pair, each), cumulative, native in zip(
                self.values.items(), self._cumulative(), sparse, strict=True
            )
        ]
        return protobuf.family(self.name, self.of.help, protobuf.HISTOGRAM, metrics)

    def metric(self) -> Metric:
        """The family as a metric of prometheus_client."""
        metric = Metric(self.name, self.of.help, "histogram")
        bounds = _bounds(self.of.bounds_s).texts
        for (pair, each), cumulative in zip(self.values.items(), self._cumulative(), strict=True):
            labels = dict(zip(REQUEST_LABELS, pair, strict=True))
            for bucket, (bound, count) in enumerate(zip(bounds, cumulative, strict=True)):
                metric.add_sample(
                    f"{self.name}_bucket",
                    {**labels, "le": bound},
                    count,
                    exemplar=_library_exemplar(each.exemplars.get(bucket)),
                )
            metric.add_sample(f"{self.name}_count", labels, cumulative[-1])
            metric.add_sample(f"{self.name}_sum", labels, each.sum_s)
        return metric

    def _cumulative(self) -> list[list[int]]:
        counted = matrix(each.counts for each in self.values.values())
        buckets: list[list[int]] = cells(self.of.bounds_s).cumulative(counted).tolist()
        return buckets


@lru_cache(maxsize=64)
def _lines(of: LatencyHistogram) -> LabelCache[str]:
    """The lines of a histogram, with placeholders for bucket counts, total count and sum."""

    def make(pair: Labels) -> str:
        labels = labels_text(REQUEST_LABELS, pair).replace("%", "%%")
        ends = _bounds(of.bounds_s).texts
        buckets = [f'{of.name}_bucket{{{labels},le="{bound}"}} %s\n' for bound in ends]
        rest = f"{of.name}_count{{{labels}}} %s\n{of.name}_sum{{{labels}}} %s\n"
        return "".join([*buckets, rest])

    return LabelCache(make)


@lru_cache(maxsize=64)
def _bounds(bounds_s: tuple[float, ...]) -> _Bounds:
    all_s = (*bounds_s, float("inf"))
    return _Bounds(tuple(map(floatToGoString, all_s)), tuple(map(protobuf.upper_bound, all_s)))


def _library_exemplar(exemplar: Exemplar | None) -> LibraryExemplar | None:
    if exemplar is None:
        return None
    trace_id, value_s, at_unix_s = exemplar
    return LibraryExemplar({"trace_id": trace_id}, value_s, at_unix_s)
