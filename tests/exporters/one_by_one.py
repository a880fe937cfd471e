from bisect import bisect_left

from exporters.format.histogram_cells import Cells
from exporters.format.histograms import Distribution, Exemplar


def cell_of(of: Cells, value_s: float) -> int:
    return bisect_left(of.bounds_s, value_s)


def observe(held: Distribution, value_s: float, exemplar: Exemplar | None = None) -> None:
    cell = cell_of(held.cells, value_s)
    held.counts[cell] += 1
    held.sum_s += value_s
    if exemplar is not None:
        held.exemplars[held.cells.buckets[cell]] = exemplar
