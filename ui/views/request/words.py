"""The texts of the Request page. Pure HTML. External text is escaped."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from diagnosis.one_request.account import LatencyAccount
from diagnosis.one_request.delayers import TenantDelay
from telemetry.latency_rank import LatencyRank
from telemetry.requests import Outcome, Source
from ui.kit import data_sources, wording
from ui.kit.part_names import part_name
from ui.kit.tables import table
from ui.kit.terms import LATENCY_NAMES, term

ENOUGH: Final = 20
"""Minimum number of similar requests for a comparison."""
MAX_PARTS: Final = 3
MAX_TENANTS: Final = 8
"""Maximum number of tenants in the table. A note has the sum of all other tenants."""
MIN_SHARE: Final = 0.05
"""Parts with a smaller share of the request's time are omitted."""

_ENDED: Final = {
    Outcome.STOP: "The response took <b>{whole}</b>",
    Outcome.LENGTH: "The response took <b>{whole}</b> and ended at its token limit",
    Outcome.ABORT: "The client disconnected after <b>{whole}</b>",
    Outcome.ERROR: "The server failed after <b>{whole}</b>",
    Outcome.REJECTED: "It was refused after <b>{whole}</b>, before an engine received it",
}


def sentence(row: Mapping[str, Any], account: LatencyAccount, zone: tzinfo) -> str:
    """The request's outcome, its duration, and the parts that took longest."""
    name = wording.for_html(row["request_id"] or row["trace_id"], 80)
    at = wording.clock(row["received_unix_ns"], zone, date=True)
    where = f" on {wording.for_html(row['replica'])}" if row["replica"] else ""
    ended = _ENDED[Outcome(row["outcome"])].format(whole=wording.seconds(row["e2e_s"]))
    first = _first_token(row)
    received = f"<b class='name'>{name}</b> received {at}{where}."
    return f"{received} {ended}{first}. {_largest_parts(account, row['e2e_s'])}".strip()


def _first_token(row: Mapping[str, Any]) -> str:
    ttft = wording.seconds(row["ttft_s"])
    if row["outcome"] == Outcome.REJECTED:
        status = row["http_status"]
        return "" if status is None else f" (HTTP {status})"
    if row["ttft_s"] is None:
        return ", before a first token" if row["prefill_s"] is None else ""
    if row.get("streamed") is False:
        return ", not streamed"
    first_byte = f", its first byte <b>{ttft}</b>"
    # Without reasoning, the first content arrives just after the first byte.
    if not row.get("reasoning_tokens") or row.get("first_content_s") is None:
        return first_byte
    return f"{first_byte}, its first content <b>{wording.seconds(row['first_content_s'])}</b>"


def _largest_parts(account: LatencyAccount, whole_s: float) -> str:
    largest = sorted(account.parts_s.items(), key=lambda part: -part[1])[:MAX_PARTS]
    named = [
        f"{part_name(part)[0].removesuffix(': not split')} <b>{wording.seconds(seconds)}</b> "
        f"({wording.percent(seconds / whole_s)})"
        for part, seconds in largest
        if whole_s > 0 and seconds >= MIN_SHARE * whole_s and part != "unsplit"
    ]
    return f"Most of it: {', '.join(named)}." if named else ""


def rank(row: Mapping[str, Any], found: Mapping[str, LatencyRank]) -> str | None:
    """The request compared with similar requests, or None if none of its latencies is known."""
    like = " ".join(
        [
            "requests",
            *([f"of {wording.for_html(row['model'])}"] if row["model"] else []),
            *([f"on {wording.for_html(row['route'])}"] if row["route"] else []),
        ]
    )
    sentences = []
    for name, place in found.items():
        others = place.number - 1
        latency = term(name, LATENCY_NAMES[name])
        if others < ENOUGH:
            sentences.append(
                f"too few similar requests to compare its {latency} ({wording.count(others)})"
            )
        elif place.quicker >= place.slower:
            sentences.append(f"slower than {_share_of(place.quicker, others)} by {latency}")
        else:
            sentences.append(f"faster than {_share_of(place.slower, others)} by {latency}")
    if not sentences:
        return None
    return f"Compared with {like} received up to 30 min before or after it: {'; '.join(sentences)}."


def _share_of(some: int, others: int) -> str:
    share = "all" if some == others else f"{wording.percent(some / others)}"
    return f"<b>{share}</b> of {wording.count(others)}"


def less(row: Mapping[str, Any]) -> str | None:
    """A sentence about the values that the row's source does not report, or None."""
    source = Source(row["source"]) if row["source"] else None
    if source in data_sources.SOURCE_NOTES:
        return f"This request is {data_sources.SOURCE_NOTES[source]}."
    if row["outcome"] == Outcome.REJECTED:
        return "It did not reach an engine, so it has no queue, prefill or decode."
    split = ("queue_seats_s", "prefill_own_s", "decode_own_s")
    if row["queue_s"] is not None and all(row[name] is None for name in split):
        return (
            "The engine’s step ledger has no entry for this request: its phases are known, but "
            "their parts are not."
        )
    return None


def moments(instants: Any, received_unix_ns: int, zone: tzinfo) -> str:
    """The instants of the request. The first instant is a clock time. The other instants are
    seconds since the first instant."""
    listed = "".join(
        f"<div><small>{each.name}</small>"
        + (
            wording.clock_ms(received_unix_ns, zone)
            if place == 0
            else wording.signed_seconds(each.at_s)
        )
        + "</div>"
        for place, each in enumerate(instants)
    )
    return f"<div class='facts'>{listed}</div>"


def parts_table(account: LatencyAccount, whole_s: float) -> str:
    """The parts of the request's time, and their sum."""
    rows = [
        (
            f"<i class='swatch' style='background:{colour}'></i>{name}<small> · {meaning}</small>",
            wording.seconds(seconds),
            wording.share(seconds, whole_s),
        )
        for name, colour, meaning, seconds in (
            (*part_name(part), seconds) for part, seconds in account.parts_s.items()
        )
    ]
    whole = ("<b>whole</b>", f"<b>{wording.seconds(whole_s)}</b>", "")
    return table(("part", "time", "share"), [*rows, whole])


def tenant_delays(found: Sequence[TenantDelay]) -> str:
    """How long each tenant's requests delayed this request."""
    rows = [
        (
            wording.UNKNOWN if each.tenant is None else wording.for_html(each.tenant),
            wording.count(each.requests),
            wording.signed_seconds(each.prefill_s or None),
            wording.signed_seconds(each.decode_s or None),
            f"<b>{wording.signed_seconds(each.cost_s)}</b>",
        )
        for each in found[:MAX_TENANTS]
    ]
    more = len(found) - MAX_TENANTS
    left = sum(each.cost_s for each in found[MAX_TENANTS:])
    note = (
        f"<p class='note'>{wording.counted(more, 'more tenant')} delayed it by"
        f" {wording.seconds(left)} in all.</p>"
        if more > 0
        else ""
    )
    heads = ("delayed by tenant", "requests", "by their prefills", "by their decodes", "in all")
    return table(heads, rows) + note


def raw(row: Mapping[str, Any]) -> str:
    """A table of all stored fields. The names are the same as in the database and the CLI."""
    known = ((name, value) for name, value in row.items() if value is not None)
    return table((), [(name, wording.for_html(str(value), 200)) for name, value in known], "raw")
