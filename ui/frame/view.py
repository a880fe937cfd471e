"""What the reader looks at, and how it is written in the page's address.

Pure. A link reproduces the view. An address is foreign text: what cannot be understood
falls back to the default, and a notice says so.

    last=15m                    the last 15 minutes, live
    last=15m&to=1763635452      the same, paused at that instant
    from=…&to=…                 a range of one's own; unix seconds or ISO 8601
    latency=ttft  model=… replica=… tenant=… route=… outcome=…  request=…
    page=root-cause             which page (pages.py has their names); without it the first, or,
                                where it names a latency or a request, that of requests
    page=request&request=…      one request: TRACE/SPAN, an id of its server, or of its trace
    measure=…                   of the fleet, what is drawn side by side
    incident=SLO@TIME           an incident: without a range, its own (incident_address.py); with
                                one, which of the range's incidents comes first
    baseline=…/…                what to compare with, as from and to; else the stretch before
    decide=size                 whether there is an incident: by the size of the growth, not by SLOs
    by=hour                     a promise's history by the hour, not by the day
    per=model                   costs by another label than the tenant
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from store.queries import Window
from store.requests.lookup import LONGEST as LONGEST_ID
from telemetry.requests import Outcome
from ui.frame.instants import LATEST_UNIX_S, instant_unix_ns, seconds_text
from ui.frame.pages import BY_KEY, FIRST
from ui.kit.replica_measures import FIRST_MEASURE, MEASURES
from ui.kit.wording import plain

SECOND_NS: Final = 1_000_000_000
RANGES_S: Final = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400}
DEFAULT_RANGE: Final = "15m"
LATENCIES: Final = {
    "ttft": "ttft_s",
    "itl_max": "itl_max_s",
    "tpot": "tpot_s",
    "e2e": "e2e_s",
    "queue": "queue_s",
}
LABELS: Final = ("model", "replica", "tenant", "route", "outcome")
STEPS: Final = ("day", "hour")
"""Of a promise's history."""
DECIDERS: Final = ("slo", "size")
"""What decides whether there is an incident: compliance, or the size of the growth."""
PAYERS: Final = ("tenant", "model", "route", "replica", "outcome")
"""What costs are told by."""
LONGEST_INCIDENT: Final = 2_000
"""Characters. The name of a group holds its values, each of up to 256 characters."""
LONGEST_RANGE_S: Final = 400 * 86_400


RENAMED: Final = {"hurt": "overview", "why": "root-cause", "promises": "slos"}
"""Pages' former names, in links that were sent."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """One request, with the instant of its receipt where that is known: then a database that
    is sorted by time need not search for it."""

    received_unix_ns: int | None
    trace_id: str
    span_id: str

    def __str__(self) -> str:
        if self.received_unix_ns is None:
            return f"{self.trace_id}/{self.span_id}"
        return f"{self.received_unix_ns}-{self.trace_id}-{self.span_id}"

    @staticmethod
    def parse(text: str) -> "RequestKey | None":
        """The inverse of str; None for anything else."""
        if match := re.fullmatch(r"([0-9a-f]{1,32})/([0-9a-f]{1,16})", text):
            return RequestKey(None, match[1], match[2])
        match = re.fullmatch(r"([0-9]{1,19})-([0-9a-f]{1,32})-([0-9a-f]{1,16})", text)
        if match is None or int(match[1]) >= LATEST_UNIX_S * SECOND_NS:
            return None
        return RequestKey(int(match[1]), match[2], match[3])


@dataclass(frozen=True, slots=True)
class View:
    """The reader's choices.

    `last` alone follows the clock; with `to_unix_ns` it is paused there; `from_unix_ns` and
    `to_unix_ns` are a range of one's own, and `last` is None then.
    """

    last: str | None = DEFAULT_RANGE
    from_unix_ns: int | None = None
    to_unix_ns: int | None = None
    latency: str = "ttft_s"
    equals: Mapping[str, str] = field(default_factory=dict)
    request: RequestKey | str | None = None
    """The one that is open; words where the reader typed an id, on its own page alone."""
    page: str = FIRST
    baseline: Window | None = None
    incident: str | None = None
    decide: str = DECIDERS[0]
    by: str = STEPS[0]
    measure: str = FIRST_MEASURE
    per: str = PAYERS[0]

    @property
    def live(self) -> bool:
        """Whether the window follows the clock."""
        return self.to_unix_ns is None

    @property
    def names_incident(self) -> bool:
        """Whether the range is that of an incident, which is not read yet."""
        return self.incident is not None and self.last is None and self.to_unix_ns is None

    def window(self, now_unix_ns: int) -> Window:
        """The range to show, half open."""
        to = now_unix_ns if self.to_unix_ns is None else self.to_unix_ns
        if self.last is not None:
            return Window(max(0, to - RANGES_S[self.last] * SECOND_NS), to)
        return Window(to if self.from_unix_ns is None else self.from_unix_ns, to)

    def paused_at(self, now_unix_ns: int) -> "View":
        """The same range, standing still."""
        return self if not self.live else replace(self, to_unix_ns=now_unix_ns)

    def following(self, last: str) -> "View":
        """The last so-long, following the clock."""
        return replace(self, last=last, from_unix_ns=None, to_unix_ns=None, incident=None)

    def between(self, from_unix_ns: int, to_unix_ns: int) -> "View":
        """A range of one's own."""
        return replace(
            self, last=None, from_unix_ns=from_unix_ns, to_unix_ns=to_unix_ns, incident=None
        )


def parse(parameters: Mapping[str, str]) -> tuple[View, list[str]]:
    """Read an address's parameters; the notices name what was not understood."""
    notices: list[str] = []
    view = _range(parameters, notices)
    latency = parameters.get("latency", "ttft")
    if latency not in LATENCIES:
        notices.append(_refused("latency", latency, ", ".join(LATENCIES), "showing ttft"))
        latency = "ttft"
    equals = {label: parameters[label] for label in LABELS if parameters.get(label)}
    if "outcome" in equals and equals["outcome"] not in set(Outcome):
        refused = equals.pop("outcome")
        notices.append(_refused("outcome", refused, ", ".join(Outcome), "showing all"))
    page = parameters.get("page", _implied_page(parameters))
    page = RENAMED.get(page, page)
    if page not in BY_KEY:
        instead = f"showing “{BY_KEY[FIRST].question}”"
        notices.append(_refused("page", page, ", ".join(BY_KEY), instead))
        page = FIRST
    decide = parameters.get("decide", DECIDERS[0])
    if decide not in DECIDERS:
        notices.append(_refused("decide", decide, ", ".join(DECIDERS), f"using {DECIDERS[0]}"))
        decide = DECIDERS[0]
    by = parameters.get("by", STEPS[0])
    if by not in STEPS:
        notices.append(_refused("by", by, ", ".join(STEPS), f"showing by the {STEPS[0]}"))
        by = STEPS[0]
    per = parameters.get("per", PAYERS[0])
    if per not in PAYERS:
        notices.append(_refused("per", per, ", ".join(PAYERS), f"showing by {PAYERS[0]}"))
        per = PAYERS[0]
    measure = parameters.get("measure", FIRST_MEASURE)
    if measure not in MEASURES:
        notices.append(
            _refused("measure", measure, ", ".join(MEASURES), f"showing {FIRST_MEASURE}")
        )
        measure = FIRST_MEASURE
    known = {
        *("last", "from", "to", "latency", "request", "page", "baseline", "decide", "by"),
        *("incident", "measure", "per", *LABELS),
    }
    if unknown := [name for name in parameters if name not in known]:
        names = ", ".join(f"“{plain(name)}”" for name in unknown[:5])
        notices.append(f"The address says {names}, which this page does not know: ignored.")
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
    )
    return view, notices


def parameters(view: View) -> dict[str, str]:
    """The inverse of `parse`; defaults are left out, but the range is always written."""
    written: dict[str, str] = {}
    if view.last is not None:
        written["last"] = view.last
    elif view.from_unix_ns is not None:
        written["from"] = seconds_text(view.from_unix_ns)
    if view.to_unix_ns is not None:
        written["to"] = seconds_text(view.to_unix_ns)
    name = next(name for name, column in LATENCIES.items() if column == view.latency)
    if name != "ttft":
        written["latency"] = name
    written.update(view.equals)
    if isinstance(view.request, RequestKey) or (view.request and view.page == "request"):
        written["request"] = str(view.request)
    if view.measure != FIRST_MEASURE:
        written["measure"] = view.measure
    if view.baseline is not None:
        ends = (view.baseline.from_unix_ns, view.baseline.to_unix_ns)
        written["baseline"] = "/".join(seconds_text(end) for end in ends)
    if view.incident is not None:
        written["incident"] = view.incident
    if view.decide != DECIDERS[0]:
        written["decide"] = view.decide
    if view.by != STEPS[0]:
        written["by"] = view.by
    if view.per != PAYERS[0]:
        written["per"] = view.per
    if view.page != _implied_page(written):
        return {"page": view.page, **written}
    return written


def _implied_page(parameters: Mapping[str, str]) -> str:
    """The page of an address that names none: links that were sent before there were several
    speak of requests."""
    return "requests" if {"latency", "request"} & set(parameters) else FIRST


def link(view: View) -> str:
    """An address, relative to any of the explorer's own, that opens this view.

    A filter's value that no address should hold is left out of it.
    """
    written = {name: value for name, value in parameters(view).items() if len(value) <= LONGEST_ID}
    return f"?{urlencode(written, quote_via=quote)}"


def pasted(text: str) -> RequestKey | str | None:
    """What somebody means who pastes this: a link of the explorer's, a key of its, or words."""
    text = text.strip()
    if text.startswith(("http://", "https://", "?")):
        _, _, asked = text.partition("?")
        text = dict(parse_qsl(asked)).get("request", text).strip()
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
        _refused("request", text, "a key this page has written", "showing none of its own")
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
                _refused("last", last, ", ".join(RANGES_S), f"showing the last {DEFAULT_RANGE}")
            )
            return View()
        return View(last=last, to_unix_ns=to_ns)
    if from_ns is None or to_ns is None:
        if (start is None) != (end is None):
            notices.append(
                "The address gives one end of a time range; it takes both from and to:"
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


def _baseline(parameters: Mapping[str, str], notices: list[str]) -> Window | None:
    if (text := parameters.get("baseline")) is None:
        return None
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
        _refused(
            "baseline",
            text,
            "FROM/TO, each unix seconds or an ISO 8601 time, at most 400 days apart",
            "comparing with the stretch before",
        )
    )
    return None


def _instant(name: str, text: str | None, notices: list[str]) -> int | None:
    if text is None:
        return None
    if (at_ns := instant_unix_ns(text)) is None:
        notices.append(_refused(name, text, "unix seconds or an ISO 8601 time", "ignored"))
    return at_ns


def _refused(name: str, given: str, allowed: str, instead: str) -> str:
    return f"The address's {name} is “{plain(given)}”; it takes {allowed}: {instead}."
