"""Convert between a page's address and a view. Pure.

A view is the reader's selection. The address is untrusted input. A parameter that cannot be parsed
gets its default, and the page shows a notice. The path selects the page (`root-cause?last=1h`).
Links in alerts and dashboards name the page in the query (`?page=root-cause`), and the server
redirects these links.

    last=15m                    the last 15 minutes, live
    last=15m&to=1763635452      the 15 minutes before the instant `to`, paused
    from=…&to=…                 a custom range; unix seconds or ISO 8601
    latency=ttft                the latency that the page shows
    model=… replica=… tenant=… route=… outcome=…
                                filters
    request=…                   one request: TRACE/SPAN, a request id or a trace id
    measure=…                   the measure that the Fleet page compares
    incident=SLO@TIME           without a range: show the incident's range (incident_links.py);
                                with a range: list this incident first
    baseline=…/…                start and end of the baseline; default: the previous range
    baseline=24h                the same range 24 hours earlier
    decide=size                 detect incidents by the latency's growth, not by SLOs
    by=hour                     show compliance for each hour; default: for each day
    per=model                   label by which costs are grouped; default: the tenant
    change=rate=1.5x,replicas=3 What if: the changes
    sweep=max_num_seqs=16..512  What if: the values to predict one by one
    region=… endpoint=…         Outside: the region and the endpoint
    quantile=p99                Compare: the percentile; default: p95
    split=replica&before=…&after=…
                                Compare: a label and its two values; default: range and baseline
    budget=chat                 Requests: the latency budget; default: none
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from analysis.compare.question import SIDES, SPLITS
from analysis.over_time.time_bins import SECOND_NS
from analysis.what_if_search import sweep_of
from replay.edits import EditError, edits_of
from telemetry.durations import parse_ns
from telemetry.labels import MAX_ID_CHARS as LONGEST_ID
from telemetry.requests import Outcome
from telemetry.window import Window
from ui.frame.pages import BY_KEY, FIRST
from ui.frame.view import (
    BUDGETS,
    CONTENT,
    DECIDERS,
    DEFAULT_QUANTILE,
    DEFAULT_RANGE,
    LABELS,
    LATENCIES,
    NO_BUDGET,
    PAYERS,
    QUANTILES,
    RANGES_S,
    STEPS,
    View,
)
from ui.kit import instants
from ui.kit.instants import instant_unix_ns, seconds_text
from ui.kit.replica_measures import FIRST_MEASURE, MEASURES
from ui.kit.request_key import RequestKey
from ui.kit.wording import plain

RENAMED: Final = {"hurt": "overview", "why": "root-cause", "promises": "slos"}
"""Maps the former page names in older links to the present names."""

_SETTINGS: Final = (
    *("measure", "incident", "decide", "by", "per", "change", "sweep", "region", "endpoint"),
    *("quantile", "budget"),
)
LONGEST_INCIDENT: Final = 2_000
"""Maximum characters of an incident's name. The name of an incident of a group contains label
values of up to 256 characters each."""
LONGEST_CHANGE: Final = 2_000
"""Maximum characters of a change or a sweep. A longer text is refused, because a part of it would
be another change."""
_LONGEST: Final = {
    "incident": LONGEST_INCIDENT,
    "change": LONGEST_CHANGE,
    "sweep": LONGEST_CHANGE,
}
"""Maximum characters of each value in a link. For the other values, it is `LONGEST_ID`."""
LONGEST_REASON: Final = 400
"""Maximum number of characters of an error about a change. It contains what is allowed."""
LONGEST_RANGE_S: Final = 400 * 86_400


def destination(parameters: Mapping[str, str]) -> str:
    """The page of an address without a path. The query may name the page."""
    page = parameters.get("page", _implied_page(parameters))
    page = RENAMED.get(page, page)
    return page if page in BY_KEY else FIRST


def moved(query: str) -> str | None:
    """The new address of a link without a path, or None if the link shows the first page.

    `query` has no question mark.
    """
    given = dict(parse_qsl(query, keep_blank_values=True))
    page = destination(given)
    given.pop("page", None)
    return None if page == FIRST else f"{page}?{urlencode(given, quote_via=quote)}"


def parse(parameters: Mapping[str, str], page: str = FIRST) -> tuple[View, list[str]]:
    """Return the view of an address, and a notice for each parameter that cannot be parsed.

    `page` is the address's path. If it is empty, the query may name the page.
    """
    notices: list[str] = []
    view = _range(parameters, notices)
    equals = {label: parameters[label] for label in LABELS if parameters.get(label)}
    if "outcome" in equals and equals["outcome"] not in set(Outcome):
        refused = equals.pop("outcome")
        notices.append(_refusal_notice("outcome", refused, ", ".join(Outcome), "showing all"))
    if page == FIRST:
        page = destination(parameters)
        if (named := parameters.get("page", FIRST)) not in {*BY_KEY, *RENAMED}:
            instead = f"showing {BY_KEY[FIRST].name}"
            notices.append(_refusal_notice("page", named, ", ".join(BY_KEY), instead))
    latency = _one_of(parameters, "latency", _latencies(page), "ttft", "showing ttft", notices)
    decide, by, per, measure, quantile, split, budget = (
        _one_of(parameters, name, allowed, default, instead, notices)
        for name, allowed, default, instead in (
            ("decide", DECIDERS, DECIDERS[0], f"using {DECIDERS[0]}"),
            ("by", STEPS, STEPS[0], f"showing by the {STEPS[0]}"),
            ("per", PAYERS, PAYERS[0], f"showing by {PAYERS[0]}"),
            ("measure", MEASURES, FIRST_MEASURE, f"showing {FIRST_MEASURE}"),
            ("quantile", QUANTILES, DEFAULT_QUANTILE, f"showing {DEFAULT_QUANTILE}"),
            ("split", SPLITS, "", "comparing with the baseline"),
            ("budget", BUDGETS, NO_BUDGET, "showing no budget"),
        )
    )
    sides = [parameters.get(each, "")[:LONGEST_ID] if split else "" for each in SIDES]
    known = {*_SETTINGS, *LABELS, "split", *SIDES}
    known |= {"last", "from", "to", "latency", "request", "page", "baseline"}
    if unknown := [name for name in parameters if name not in known]:
        names = ", ".join(f"“{plain(name)}”" for name in unknown[:5])
        notices.append(
            f"The address contains {names}, which this page does not support. It is ignored."
        )
    view = replace(
        view,
        latency=LATENCIES[latency],
        equals=equals,
        request=_request(parameters, page, notices),
        page=page,
        baseline=_baseline(parameters, notices),
        incident=parameters.get("incident", "")[:LONGEST_INCIDENT] or None,
        decide=decide,
        by=by,
        measure=measure,
        per=per,
        change=_what_if_edits(parameters, notices),
        sweep=_sweep(parameters, notices),
        quantile=quantile,
        split=split,
        before=sides[0],
        after=sides[1],
        budget=budget,
        region=parameters.get("region", "")[:LONGEST_ID],
        endpoint=parameters.get("endpoint", "")[:LONGEST_ID],
    )
    return view, notices


def parameters(view: View) -> dict[str, str]:
    """Return the query parameters of a view. This is the inverse of `parse`.

    Parameters with default values are omitted, except for the range.
    """
    written: dict[str, str] = {}
    if view.last is not None:
        written["last"] = view.last
    elif view.from_unix_ns is not None:
        written["from"] = seconds_text(view.from_unix_ns)
    if view.to_unix_ns is not None:
        written["to"] = seconds_text(view.to_unix_ns)
    if view.metric != "ttft" and view.metric in _latencies(view.page):
        written["latency"] = view.metric
    written.update(view.equals)
    if isinstance(view.request, RequestKey) or (view.request and view.page == "request"):
        written["request"] = str(view.request)
    if isinstance(view.baseline, str):
        written["baseline"] = view.baseline
    elif view.baseline is not None:
        ends = (view.baseline.from_unix_ns, view.baseline.to_unix_ns)
        written["baseline"] = "/".join(seconds_text(end) for end in ends)
    defaults = View()
    for name in _SETTINGS:
        if (value := getattr(view, name)) != getattr(defaults, name):
            written[name] = value
    if view.split:
        written |= {"split": view.split, "before": view.before, "after": view.after}
    if view.page == FIRST != _implied_page(written):
        return {"page": view.page, **written}
    return written


def _one_of(
    parameters: Mapping[str, str],
    name: str,
    allowed: Iterable[str],
    default: str,
    instead: str,
    notices: list[str],
) -> str:
    chosen = parameters.get(name, default)
    if chosen == default or chosen in allowed:
        return chosen
    notices.append(_refusal_notice(name, chosen, ", ".join(allowed), instead))
    return default


def _latencies(page: str) -> list[str]:
    """The latencies that a page's address may contain.

    A page without a latency control accepts all latencies, because its links pass them on to other
    pages.
    """
    there = BY_KEY[page]
    return [
        name for name in LATENCIES if name != CONTENT or there.by_content or not there.by_latency
    ]


def _implied_page(parameters: Mapping[str, str]) -> str:
    if RequestKey.parse(parameters.get("request", "").strip().lower()) is not None:
        return "request"
    return "requests" if {"latency", "request"} & set(parameters) else FIRST


def link(view: View) -> str:
    """The address of a view, relative to any page. Values that are too long for an address are
    omitted."""
    written = {
        name: value
        for name, value in parameters(view).items()
        if len(value) <= _LONGEST.get(name, LONGEST_ID)
    }
    path = "./" if view.page == FIRST else view.page
    return f"{path}?{urlencode(written, quote_via=quote)}"


def request_link(view: View, request: RequestKey) -> str:
    """The address of a request's page."""
    return link(replace(view, page="request", request=request))


def pasted(text: str) -> RequestKey | str | None:
    """Return the request key that a pasted link or text contains, or None for an empty text.

    Return any other text unchanged.
    """
    text = text.strip()
    if text.startswith(("http://", "https://", "?")):
        _, _, query = text.partition("?")
        text = dict(parse_qsl(query)).get("request", text).strip()
    return RequestKey.parse(text.lower()) or text[:LONGEST_ID] or None


def _request(
    parameters: Mapping[str, str], page: str, notices: list[str]
) -> RequestKey | str | None:
    text = parameters.get("request", "").strip()
    if not text or (key := RequestKey.parse(text.lower())) is not None:
        return key if text else None
    if page == "request":
        return text[:LONGEST_ID]
    notices.append(
        _refusal_notice("request", text, "a key from a link to a request", "showing no request")
    )
    return None


def _range(parameters: Mapping[str, str], notices: list[str]) -> View:
    last, start, end = (parameters.get(name) for name in ("last", "from", "to"))
    if parameters.get("incident") and last is start is end is None:
        return View(last=None)
    from_ns = _instant("from", start, notices) if last is None else None
    to_ns = _instant("to", end, notices)
    if last is not None:
        if last not in RANGES_S:
            notices.append(
                _refusal_notice(
                    "last", last, ", ".join(RANGES_S), f"showing the last {DEFAULT_RANGE}"
                )
            )
            return View()
        return View(last=last, to_unix_ns=to_ns)
    if from_ns is None or to_ns is None:
        if (start is None) != (end is None):
            notices.append(
                "The address has only one end of a time range; both from and to are required:"
                f" showing the last {DEFAULT_RANGE}."
            )
        return View()
    if not 0 < to_ns - from_ns <= LONGEST_RANGE_S * SECOND_NS:
        notices.append(
            "The address's time range must end after it begins and span at most 400 days:"
            f" showing the last {DEFAULT_RANGE}."
        )
        return View()
    return View().between(from_ns, to_ns)


def _baseline(parameters: Mapping[str, str], notices: list[str]) -> Window | str | None:
    if (text := parameters.get("baseline")) is None:
        return None
    with suppress(ValueError):
        parse_ns(text)
        return text
    start, _, end = text.partition("/")
    unread: list[str] = []
    from_ns, to_ns = _instant("from", start, unread), _instant("to", end, unread)
    if (
        from_ns is not None
        and to_ns is not None
        and 0 < to_ns - from_ns <= LONGEST_RANGE_S * SECOND_NS
    ):
        return Window(from_ns, to_ns)
    notices.append(
        _refusal_notice(
            "baseline",
            text,
            "FROM/TO, each unix seconds or an ISO 8601 time, at most 400 days apart,"
            " or a duration such as 24h",
            "comparing with the previous range",
        )
    )
    return None


def _text(name: str, parameters: Mapping[str, str], notices: list[str]) -> str:
    text = parameters.get(name, "").strip()
    if len(text) <= LONGEST_CHANGE:
        return text
    notices.append(
        f"The address's {name} has {len(text):,} characters; allowed: at most"
        f" {LONGEST_CHANGE:,}. Now showing no {name}."
    )
    return ""


def _what_if_edits(parameters: Mapping[str, str], notices: list[str]) -> str:
    text = _text("change", parameters, notices)
    if not text:
        return ""
    try:
        return ",".join(edits_of(text.split(",")).listed())
    except EditError as error:
        reason = plain(str(error), LONGEST_REASON)
        notices.append(f"The address's change: {reason}. Now showing no change.")
        return ""


def _sweep(parameters: Mapping[str, str], notices: list[str]) -> str:
    text = _text("sweep", parameters, notices)
    if not text:
        return ""
    try:
        sweep_of(text)
    except EditError as error:
        reason = plain(str(error), LONGEST_REASON)
        notices.append(f"The address's sweep: {reason}. Now showing no sweep.")
        return ""
    return text


def _instant(name: str, text: str | None, notices: list[str]) -> int | None:
    if text is None:
        return None
    if (at_ns := instant_unix_ns(text)) is None:
        notices.append(_refusal_notice(name, text, instants.allowed(text), "ignored"))
    return at_ns


def _refusal_notice(name: str, given: str, allowed: str, instead: str) -> str:
    return f"The address's {name} is “{plain(given)}”; allowed: {allowed}. Now {instead}."
