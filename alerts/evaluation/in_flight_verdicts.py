"""Which requests in flight already miss an objective: they are bad at once, not when they end.

A request in flight is judged by what is certain while it runs. It has waited at least so long for
its first byte, or TTFT is known; it takes at least so long in all. Where that breaks the objective
it stays broken, however the request ends (`docs/decisions/074`). Everything else, such as the time
per token, the number of tokens or the outcome, is undecided until the end. Nothing in flight is
ever good.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alerts.evaluation.request_verdicts import Verdict
from alerts.evaluation.table_verdicts import VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput
from store.schema import arrow_type
from telemetry.in_flight import SELECTED_BY, InFlightRequest
from telemetry.quantiles import FloatArray
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline

BoolArray = NDArray[np.bool_]
_BAD: Final = VERDICTS.index(Verdict.BAD)
KNOWN: Final = ("ttft_s", *SELECTED_BY)
"""What is read of a request in flight, besides how long it has run."""


def newly_bad(goodput: Goodput, reports: Sequence[InFlightRequest]) -> BoolArray:
    """Return which requests in flight are bad, and were not at the report before this one."""
    columns = columns_of_reports(reports, KNOWN)
    age_s = np.array([each.age_s for each in reports], np.float64)
    before_s = np.array([each.reported_in_flight_s for each in reports], np.float64)
    return bad_at(goodput, columns, age_s) & ~bad_at(goodput, columns, before_s)


def columns_of_reports(
    reports: Sequence[InFlightRequest], names: Sequence[str]
) -> dict[str, pa.Array]:
    """Return fields of the reports as columns."""
    return {
        name: pa.array([getattr(each, name) for each in reports], arrow_type(name, InFlightRequest))
        for name in names
    }


def was_bad_in_flight(goodput: Goodput, rows: RequestRows) -> BoolArray:
    """Return which ended requests were bad already when they were last reported in flight.

    It follows from the row alone, so it holds after a restart and in another collector.
    """
    if not rows.is_known("reported_in_flight_s"):
        return np.zeros(len(rows), bool)
    columns = {
        name: pa.array(rows.column(name), arrow_type(name, RequestTimeline)) for name in KNOWN
    }
    return bad_at(goodput, columns, rows.numbers("reported_in_flight_s"))


def bad_at(goodput: Goodput, columns: Mapping[str, Any], age_s: FloatArray) -> BoolArray:
    """Judge requests as they were at this age.

    None is bad where the group of a request is not certain yet: it would count in another one.

    Args:
        goodput: the objective, not one of its groups.
        columns: those of `KNOWN`; a TTFT above the age was not known then.
        age_s: (n,); NaN where there was no report.

    Returns:
        (n,) bool.
    """
    if not set(goodput.by) <= set(SELECTED_BY):
        return np.zeros(len(age_s), bool)
    reported = ~np.isnan(age_s)
    told = dict(columns)
    then = pc.less_equal(told["ttft_s"], pa.array(age_s))
    told["ttft_s"] = pc.if_else(pc.fill_null(then, False), told["ttft_s"], pa.scalar(None))
    told["e2e_s"] = pa.array(np.where(reported, age_s, 0.0))
    for name in columns_of(goodput.where, goodput.good):
        if name not in told:
            kind = pa.float64() if name == "tpot_s" else arrow_type(name, RequestTimeline)
            told[name] = pa.nulls(len(age_s), kind)
    codes = judge_table(goodput.where, goodput.good, pa.table(told))
    bad: BoolArray = (codes == _BAD) & reported
    return bad
