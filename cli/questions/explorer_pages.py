"""Links from answers of the MCP server to pages of the explorer."""

import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from alerts.explorer_links import FILTERS, LATENCIES, PROBE_FILTERS
from analysis.compare.question import SIDES, SPLITS
from cli.options import time_range
from cli.options.time_range import DEFAULT_LAST
from telemetry.durations import parse_ns

PAGES: Final[Mapping[str, str]] = {
    "stats": "requests",
    "explain": "root-cause",
    "requests": "requests",
    "cost": "cost",
    "caches": "cost",
    "slo": "slos",
    "compare": "compare",
    "what-if": "what-if",
    "budget": "requests",
    "outside": "outside",
    "starts": "fleet",
}
_LABELS: Final = (*FILTERS, "outcome")
"""The labels that filter a page. They are query parameters of the page."""
_FILTERS: Final = {"outside": PROBE_FILTERS}
"""Maps a question to the labels that filter its page, if they are not `_LABELS`."""
_CHANGES: Final = ("replicas", "router", "rate", "prompt", "output")
"""The parameters of `what-if` that are changes, besides `set`."""
_SORTED_BY: Final = {
    f"-{column}": latency for column, latency in LATENCIES.items() if column != "first_content_s"
}
"""Maps an order of `requests` to the latency whose slowest requests the page shows. The page does
not show the time to first content."""
_NS: Final = 10**9
_RANGE_S: Final = parse_ns(DEFAULT_LAST) // _NS


def page_link(explorer: str, name: str, given: Sequence[tuple[str, str]]) -> str | None:
    """The link to the page that shows an answered question.

    Return None if no page shows it. A page must not show other requests than the answer counts.
    """
    if name not in PAGES:
        return None
    query = {"page": PAGES[name]}
    parameters = dict(given)
    if name == "explain" and "request" in parameters:
        query = {"page": "request", "request": parameters["request"]}
    elif name == "explain" and "incident" in parameters:
        if "baseline" in parameters:
            return None  # the page of an incident has the baseline of its stored explanation
        query["incident"] = parameters["incident"]
    elif name == "slo" and "at" in parameters:
        at_s = time_range.instant_ns(parameters["at"]) // _NS
        query |= {"from": str(max(0, at_s - _RANGE_S)), "to": str(max(1, at_s))}
    elif name != "slo":
        window = time_range.window(
            parameters.get("last", None if "from" in parameters else DEFAULT_LAST),
            *(parameters.get("from"), parameters.get("to"), time.time_ns()),
        )
        query |= {
            "from": f"{window.from_unix_ns / _NS:.0f}",
            "to": f"{window.to_unix_ns / _NS:.0f}",
        }
    if name == "compare":
        compared = _compared(given)
        if compared is None:
            return None
        query |= compared
    if name == "what-if":
        if "find" in parameters:
            return None
        changes = [value for key, value in given if key == "set"]
        changes += [f"{key}={value}" for key, value in given if key in _CHANGES]
        query |= {"change": ",".join(changes)} if changes else {}
        query |= {"sweep": parameters["sweep"]} if "sweep" in parameters else {}
    if name == "cost" and parameters.get("by") in _LABELS:
        query["per"] = parameters["by"]
    if name == "budget":
        query["budget"] = parameters.get("preset", "chat")
    if name == "requests" and (latency := _SORTED_BY.get(parameters.get("sort", ""))) is not None:
        query["latency"] = latency
    if name in ("explain", "compare") and "metric" in parameters:
        query["latency"] = parameters["metric"]
    if name == "explain" and "baseline" in parameters and "from" in query:
        query["baseline"] = parameters["baseline"]
    if parameters.get("by-size") == "true":
        query["decide"] = "size"
    for condition in (value for key, value in given if key == "where"):
        label, _, value = condition.partition("=")
        if label not in _FILTERS.get(name, _LABELS) or not value:
            return None
        query[label] = value
    return f"{explorer.rstrip('/')}/?{urlencode(query, safe='@/')}"


def _compared(given: Sequence[tuple[str, str]]) -> Mapping[str, str] | None:
    """The query parameters of a comparison of two ranges, or of two values of one label.

    Return None for any other comparison.
    """
    parameters = dict(given)
    query = {"quantile": parameters["quantile"]} if "quantile" in parameters else {}
    sides = [[value for key, value in given if key == f"{side}-where"] for side in SIDES]
    if not any(sides):
        before, after = (_ends(parameters[side]) for side in SIDES)
        return {**query, "from": after[0], "to": after[1], "baseline": "/".join(before)}
    if "before" in parameters or any(len(each) != 1 for each in sides):
        return None
    labels, _, values = zip(*(each.partition("=") for (each,) in sides), strict=True)
    if labels[0] != labels[1] or labels[0] not in SPLITS or not all(values):
        return None
    return {**query, "split": labels[0], **dict(zip(SIDES, values, strict=True))}


def _ends(text: str) -> tuple[str, str]:
    window = time_range.from_to(text)
    return f"{window.from_unix_ns / _NS:.0f}", f"{window.to_unix_ns / _NS:.0f}"
