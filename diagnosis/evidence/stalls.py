"""Measure stalls: seconds in which an engine step takes longer than its work explains.

The difference is called the surplus. Pure.
"""

import numpy as np

from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import BoolArray, FloatArray

_NAME = "stall_s_total"
_MIN_SAMPLES = 5
"""Minimum number of samples. The median of fewer samples is uncertain."""
_NOTICEABLE = 0.02
"""Minimum surplus that is not ignored, as a share of the time since the previous sample. A smaller
surplus may be an error of the step model."""


def stalled_while_queued_s(case: DiagnosisCase) -> FloatArray:
    """Return the seconds for which the engine was stalled while each slow request waited: (n,). If
    the engine is unknown, the mean over the replica's engines is used."""
    engines = case.servers.engines
    rise, span = np.nan_to_num(engines.rises(_NAME)), np.nan_to_num(engines.spans_s)
    waited_s = np.nan_to_num(case.slow.number("frontend_s"))
    waited_s = waited_s + np.nan_to_num(case.slow.number("queue_s"))
    stalled = np.zeros(len(case.slow))
    served_by = case.slow.number("engine")
    numbers = engines.number("engine")
    noticeable = rise > _NOTICEABLE * np.maximum(span, 0.1)
    for name in engines.replica.values:
        there = engines.replica.is_value(name)
        of_replica = np.unique(numbers[there & np.isfinite(numbers)])
        for number in of_replica.tolist() or [None]:
            mine = np.flatnonzero(case.slow.of_engine(name, number))
            its = there & (np.isnan(numbers) | (numbers == number))
            rows = np.flatnonzero(its & noticeable)
            if not rows.size or not mine.size:
                continue
            at_s = engines.at_unix_ns[rows] / 1e9
            order = np.argsort(at_s)
            at_s, total = at_s[order], np.concatenate([[0.0], np.cumsum(rise[rows][order])])
            begun = case.slow.received_unix_ns[mine] / 1e9
            # A stall is reported by the first sample after it. So include the samples of the first
            # 1.5 s after the wait.
            until = np.searchsorted(at_s, begun + waited_s[mine] + 1.5, side="right")
            since = np.searchsorted(at_s, begun, side="left")
            share = np.where(np.isnan(served_by[mine]), 1.0 / max(of_replica.size, 1), 1.0)
            stalled[mine] += share * np.minimum(total[until] - total[since], waited_s[mine])
    return stalled


def steadiness(case: DiagnosisCase) -> float | None:
    """The median surplus divided by the mean surplus, in the hot blocks.

    The ratio is near 1 if all seconds have a similar surplus. It is near 0 if a few seconds have
    nearly all of the surplus.
    """
    ratios = _ratios(case, case.rows_now(case.servers.engines))
    mean = float(ratios.mean()) if ratios.size >= _MIN_SAMPLES else 0.0
    return float(np.median(ratios)) / mean if mean > _NOTICEABLE else None


def usual_surplus_ratio(case: DiagnosisCase) -> float:
    """Return the surplus of the median second, divided by the step time that the work explains. The
    same ratio in the baseline is subtracted.

    The median is over all seconds from the first to the last slow request. If stalls are frequent,
    nearly every block of time with slow requests contains a stall.
    """
    now, before = (
        _ratios(case, rows(case.servers.engines))
        for rows in (case.rows_from_first_to_last, case.rows_before)
    )
    usual, earlier = (float(np.median(each)) if each.size else 0.0 for each in (now, before))
    return usual / max(1.0 - usual, 1e-9) - earlier / max(1.0 - earlier, 1e-9)


def surplus_ratio(case: DiagnosisCase) -> float | None:
    """Return the surplus in the hot blocks, divided by the step time that the work explains."""
    rise, busy = _surplus(case, case.rows_now(case.servers.engines))
    explained = float(busy.sum() - rise.sum())
    return float(rise.sum()) / explained if explained > 0 else None


def _ratios(case: DiagnosisCase, rows: BoolArray) -> FloatArray:
    """Return the surplus as a share of the busy time, for each sample of a busy engine."""
    rise, busy = _surplus(case, rows)
    found: FloatArray = rise[busy > 0] / busy[busy > 0]
    return found


def _surplus(case: DiagnosisCase, rows: BoolArray) -> tuple[FloatArray, FloatArray]:
    engines = case.servers.engines
    rise, busy = engines.rises(_NAME)[rows], engines.rises("busy_s_total")[rows]
    known = np.isfinite(rise) & np.isfinite(busy)
    return rise[known], busy[known]
