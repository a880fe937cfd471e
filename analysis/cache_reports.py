"""Select one report for each lookup in a cache. Pure.

Several spans may report the same lookup: the call's span, the HTTP span inside it, and the
gateway's spans.
"""

from collections.abc import Mapping, Sequence

from store.cache_lookups import CacheLookupReport, Call
from telemetry.cache_lookups import CacheKind, CacheResult

KNOWN = frozenset({CacheResult.HIT.value, CacheResult.MISS.value})


def one_of_each(
    reports: Sequence[CacheLookupReport], models: Mapping[Call, str] | None = None
) -> list[CacheLookupReport]:
    """Return one report of each lookup. A lookup of embeddings and a lookup of answers count as two
    lookups.

    Reports with a known result are preferred. Within a trace, only the reports of the service with
    the earliest report are used. If a span and its parent report the same lookup, the parent's
    report is used.

    Args:
        models: the model of each call, for reports that contain no model.
    """
    known = [each for each in reports if each.result in KNOWN]
    traces = {_trace(each) for each in known}
    others = [each for each in reports if each.result not in KNOWN and _trace(each) not in traces]
    return [_with_model(each, models or {}) for each in (*_outermost(known), *_outermost(others))]


def _trace(report: CacheLookupReport) -> tuple[str, bool]:
    return report.trace_id, report.kind == CacheKind.EMBEDDING


def _outermost(reports: Sequence[CacheLookupReport]) -> list[CacheLookupReport]:
    first: dict[tuple[str, bool], CacheLookupReport] = {}
    for each in reports:
        if each.at_unix_ns < first.setdefault(_trace(each), each).at_unix_ns:
            first[_trace(each)] = each
    reported = {(*_trace(each), each.span_id) for each in reports}
    return [
        each
        for each in reports
        if each.service == first[_trace(each)].service
        and (*_trace(each), each.parent_span_id) not in reported
    ]


def _with_model(report: CacheLookupReport, models: Mapping[Call, str]) -> CacheLookupReport:
    if report.model is not None or report.parent_span_id is None:
        return report
    return report._replace(model=models.get((report.trace_id, report.parent_span_id)))
