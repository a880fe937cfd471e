"""The effect of a change as a function of the load: one point for each range of running requests.
Pure."""

from math import hypot
from typing import Final, NamedTuple

import numpy as np

from analysis.compare.intervals import (
    MIN_BLOCKS,
    MODEL_ERROR,
    blocks_of,
    reach_of,
    spread_of,
)
from analysis.compare.parts import Equal, percentile
from replay.arrivals import FloatArray
from telemetry.quantiles import least_number

POINTS: Final = 6
MIN_REQUESTS: Final = 100
"""Minimum number of requests of a point. The 95 % interval of the P50 then extends from P40 to
P60."""


class LoadPoint(NamedTuple):
    """A point of the curve: requests with about the same number of running requests at arrival."""

    load: float
    """Median number of running requests at arrival."""
    before_s: float
    """The percentile before the change, at the mix and load of this point."""
    after_s: float
    low_s: float
    """`low_s` and `high_s` are the 95 % interval of after − before."""
    high_s: float
    requests: int


def edges_of(running: FloatArray, q: float) -> FloatArray:
    """The numbers of running requests that separate the points, in ascending order.

    Args:
        running: (n,) number of running requests at the arrival of each compared request.
    """
    number = int(min(POINTS, running.size // max(MIN_REQUESTS, least_number(q))))
    if number < 2:
        return np.empty(0)
    edges = np.unique(np.quantile(running, np.arange(1, number) / number))
    return np.asarray(edges[edges > running.min()])


def percentiles(of: Equal, edges: FloatArray, q: float) -> FloatArray:
    """The percentiles of each point, before and after the change: (points, 2). The value is NaN for
    a point without requests."""
    place = np.searchsorted(edges, of.compared.running, side="right")
    found = np.full((edges.size + 1, 2), np.nan)
    for number in range(edges.size + 1):
        mine = place == number
        if mine.any():
            found[number] = (
                percentile(of.before_s[mine], q),
                percentile(of.compared.value_s[mine], q),
            )
    return found


def points_of(
    measured: Equal, drawn: FloatArray, edges: FloatArray, q: float, blocks: int
) -> list[LoadPoint]:
    """The points of the curve, from the lowest to the highest load.

    If the load grows over time, all requests of a point may have arrived in a few blocks of time.
    The width of the point's interval depends on the number of these blocks. A point with fewer than
    `MIN_BLOCKS` blocks is left out. The number of blocks is Kish's effective sample size of the
    requests per block.

    Args:
        drawn: (draws, points, 2) the result of `percentiles` for each draw of resampled requests.
        blocks: number of blocks of time on the side with fewer blocks.
    """
    running = measured.compared.running
    place = np.searchsorted(edges, running, side="right")
    after = [place[each] for each in blocks_of(measured.compared.at_s)]
    points = []
    for number, (before_s, after_s) in enumerate(percentiles(measured, edges, q).tolist()):
        mine = running[place == number]
        if mine.size < max(MIN_REQUESTS, least_number(q)):
            continue
        counts = np.array([(each == number).sum() for each in after], dtype=np.float64)
        effective = min(blocks, int(counts.sum() ** 2 / (counts**2).sum()))
        if effective < MIN_BLOCKS:
            continue
        middle_s = after_s - before_s
        error_s = float(spread_of(drawn[:, number, 1] - drawn[:, number, 0]))
        wide_s = hypot(error_s, MODEL_ERROR * before_s) * reach_of(effective, looks=False)
        points.append(
            LoadPoint(
                float(np.median(mine)),
                before_s,
                after_s,
                middle_s - wide_s,
                middle_s + wide_s,
                int(mine.size),
            )
        )
    return points
