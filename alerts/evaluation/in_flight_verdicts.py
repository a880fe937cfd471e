"""Judge requests in flight: a request that already misses an objective is bad before it ends.

Only TTFT and lower bounds of TTFT and E2E are known (`docs/decisions/074`). A request in flight is
never good.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput
from store.schema import arrow_type
from telemetry.in_flight import SELECTED_BY, InFlightRequest
from telemetry.quantiles import FloatArray
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline

BoolArray = NDArray[np.bool_]
_BAD: Final = VERDICTS.index(RequestVerdict.BAD)
KNOWN: Final = ("ttft_s", *SELECTED_BY)
"""Fields of a request in flight that verdicts use, besides its age."""


def newly_bad(goodput: Goodput, reports: Sequence[InFlightRequest]) -> BoolArray:
    """The requests that are bad now but were not bad at their previous report."""
    columns = columns_of_reports(reports, KNOWN)
    age_s = np.array([each.age_s for each in reports], np.float64)
    before_s = np.array([each.reported_in_flight_s for each in reports], np.float64)
    return bad_at(goodput, columns, age_s) & ~bad_at(goodput, columns, before_s)


def columns_of_reports(
    reports: Sequence[InFlightRequest], names: Sequence[str]
) -> dict[str, pa.Array]:
    """Return the fields in `names` of the reports, as columns."""
    return {
        name: pa.array([getattr(each, name) for each in reports], arrow_type(name, InFlightRequest))
        for name in names
    }


def was_bad_in_flight(goodput: Goodput, rows: RequestRows) -> BoolArray:
    """The ended requests that were bad at their last report in flight."""
    if not rows.is_known("reported_in_flight_s"):
        return np.zeros(len(rows), bool)
    columns = {
        name: pa.array(rows.column(name), arrow_type(name, RequestTimeline)) for name in KNOWN
    }
    return bad_at(goodput, columns, rows.numbers("reported_in_flight_s"))


def bad_at(goodput: Goodput, columns: Mapping[str, Any], age_s: FloatArray) -> BoolArray:
    """Return which requests were bad at a given age. A request does not count as bad while its
    group is uncertain.

    Args:
        goodput: the objective, not one of its groups.
        columns: the columns in `KNOWN`. A TTFT that is longer than the request's age counts as
            unknown.
        age_s: NaN if the request was not reported (n,).

    Returns:
        (n,) bool.
    """
    if not set(goodput.by) <= set(SELECTED_BY):
        return np.zeros(len(age_s), bool)
    reported = ~np.isnan(age_s)
    known = dict(columns)
    then = pc.less_equal(known["ttft_s"], pa.array(age_s))
    known["ttft_s"] = pc.if_else(pc.fill_null(then, False), known["ttft_s"], pa.scalar(None))
    known["e2e_s"] = pa.array(np.where(reported, age_s, 0.0))
    for name in columns_of(goodput.where, goodput.good):
        if name not in known:
            kind = pa.float64() if name == "tpot_s" else arrow_type(name, RequestTimeline)
            known[name] = pa.nulls(len(age_s), kind)
    codes = judge_table(goodput.where, goodput.good, pa.table(known))
    bad: BoolArray = (codes == _BAD) & reported
    return bad
