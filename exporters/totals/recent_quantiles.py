"""Quantiles of many windows at once.

One after another, the windows of a fleet took a third of a scrape. All are added up as one long
column here, in which each has its stretch. Lists, not numpy: numbers that come out of
dictionaries are in an array no sooner than they are added up. The ranks and estimates are those
of `telemetry.sketches.quantiles_s`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from exporters.totals.recent_latencies import Counted
from telemetry.quantiles import least_number, nearest_rank
from telemetry.sketches import estimate_s


def quantiles_s(
    windows: Iterable[Counted], labels: Iterable[str]
) -> Iterator[tuple[int, str, float]]:
    """The quantiles that there are requests enough for.

    Args:
        windows: none of them empty.
        labels: the quantiles, each as it is written: "0.99".

    Yields:
        The number of the window, the quantile's label, and seconds; window by window.
    """
    windows = list(windows)
    numbers: list[int] = []
    for each in windows:
        numbers += map(each.numbers.__getitem__, each.bins)
    summed = list(accumulate(numbers))
    asked = [(label, float(label), least_number(float(label))) for label in labels]
    begin = before = 0
    for place, each in enumerate(windows):
        end = begin + len(each.bins)
        number = summed[end - 1] - before
        for label, q, enough in asked:
            if number >= enough:
                rank = before + nearest_rank(number, q)
                yield (
                    place,
                    label,
                    estimate_s(each.bins[bisect_left(summed, rank, begin, end) - begin]),
                )
        begin, before = end, summed[end - 1]
