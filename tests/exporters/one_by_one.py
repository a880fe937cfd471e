from bisect import bisect_left

from exporters.format.histogram_cells import HistogramCells
from exporters.format.histograms import Exemplar, HistogramCounts


def cell_of(of: HistogramCells, value_s: float) -> int:
    return bisect_left(of.bounds_s, value_s)


def observe(held: HistogramCounts, value_s: float, exemplar: Exemplar | None = None) -> None:
    cell = cell_of(held.cells, value_s)
    held.counts[cell] += 1
    held.sum_s += value_s
    if exemplar is not None:
        held.exemplars[held.cells.buckets[cell]] = exemplar
