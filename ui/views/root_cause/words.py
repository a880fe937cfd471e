"""The texts of the Root cause page. Pure HTML. External text is escaped."""

import html
from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from analysis.cause_sentences import NAMES, method_sentence, network_sentence
from analysis.incident import IncidentVerdict
from analysis.incident_answer import StoredAnswer
from diagnosis.claim import Evidence
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict, RiskRatio
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Span
from telemetry.durations import parse_ns
from telemetry.incidents import IncidentRow
from telemetry.printable import first_upper
from ui.frame.address import link
from ui.frame.view import EARLIER, View
from ui.kit import cause_words, wording
from ui.kit.tables import table
from ui.kit.terms import LATENCY_NAMES, term

MAX_HITS: Final = 6
LEFT: Final = 0.05
DAY_S: Final = 86_400

_TOKENS: Final = {"prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
_PLACES: Final = {
    "replica": "on",
    "engine": "at engine",
    "region": "in",
    "model": "to",
    "route": "to",
}


def sentence(explanation: Explanation, latency: str, zone: tzinfo) -> str:
    """The verdict: the latency that rose, its growth, the onset, and the number of requests."""
    name = term(latency, LATENCY_NAMES[latency])
    if explanation.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        if explanation.requests and not explanation.baseline_requests:
            return (
                f"<b>No data {_baseline_time(explanation)}.</b> The range has"
                f" {_number(explanation.requests)} with {name}, the baseline none. Choose another"
                " comparison."
            )
        return (
            f"<b>Too few requests.</b> The range has {_number(explanation.requests)} with {name},"
            f" the baseline {_number(explanation.baseline_requests)}; a verdict needs at least"
            f" {explanation.needed} in each."
        )
    slowest = f"{name} of the slowest {wording.percent(explanation.tail_share)}"
    was, now = wording.seconds(explanation.baseline_s), wording.seconds(explanation.now_s)
    if explanation.verdict is ExplanationVerdict.NO_INCIDENT:
        change = "No change from" if explanation.unchanged else "No incident compared with"
        return (
            f"<b>{change} {_previous(explanation)}:</b> {slowest} is <b>{now}</b>, was"
            f" <b>{was}</b>. {_counts(explanation)}"
        )
    since = (
        "" if explanation.onset_unix_ns is None else f" at <b>{_onset_time(explanation, zone)}</b>"
    )
    return (
        f"{slowest} rose from <b>{was}</b> to <b>{now}</b>{since}: "
        f"<b>{wording.signed_seconds(explanation.excess_s)}</b>. {_counts(explanation)}"
    )


def _onset_time(explanation: Explanation, zone: tzinfo) -> str:
    assert explanation.onset_unix_ns is not None
    return wording.clock(
        explanation.onset_unix_ns, zone, date=explanation.question.window.seconds > DAY_S
    )


def _number(requests: int) -> str:
    return f"<b>{wording.counted(requests, 'request')}</b>"


def _counts(explanation: Explanation) -> str:
    return (
        f"{wording.counted(explanation.requests, 'request')} now, "
        f"{wording.count(explanation.baseline_requests)} before."
    )


def _previous(explanation: Explanation) -> str:
    if explanation.question.baseline == explanation.question.window.before:
        return f"the previous {wording.span(explanation.question.baseline.seconds)}"
    return "the baseline"


def _baseline_time(explanation: Explanation) -> str:
    question = explanation.question
    for ago, words in EARLIER.items():
        if question.window.from_unix_ns - question.baseline.from_unix_ns == parse_ns(ago):
            return words.removeprefix("vs. ")
    return f"in {_previous(explanation)}"


def incident(row: IncidentRow, verdict: IncidentVerdict | None, zone: tzinfo) -> str:
    """The incident and its verdict, in the same words as `tailspan explain`."""
    name = wording.for_html(row.slo, 63)
    cause = None if verdict is None else verdict.sentence
    finding = "no cause found yet" if cause is None else wording.for_html(cause, 600)
    return f"<p class='headline'>Incident <b>{name}</b> {_incident_time(row, zone)}: {finding}</p>"


def stored_incident(row: IncidentRow, answer: StoredAnswer, zone: tzinfo, seen_unix_ns: int) -> str:
    """The incident with its stored answer, and the time when the answer was computed.

    For an open incident, a time is shown with its date if it is not on the day of `seen_unix_ns`.
    """

    def moment(unix_ns: int) -> str:
        if row.ended_unix_s is not None:
            return wording.clock(unix_ns, zone, date=True)
        return wording.clock_or_date(unix_ns, zone, seen_unix_ns)

    computed = f"About the whole incident. {wording.for_html(answer.computed(moment), 300)}"
    return f"{incident(row, answer.verdict, zone)}<p class='note'>{computed}</p>"


def probe_incident(row: IncidentRow, zone: tzinfo) -> str:
    """An incident of an objective on probes, with a link to the Outside page."""
    where = View(last=None, page="outside", incident=f"{row.slo}@{row.fired_unix_s}")
    return (
        f"<p class='headline'>Incident <b>{wording.for_html(row.slo, 63)}</b>"
        f" {_incident_time(row, zone)}: this objective counts probes, and this page explains"
        f" requests. <a href='{html.escape(link(where))}' target='_self'>Show its probes</a></p>"
    )


def _incident_time(row: IncidentRow, zone: tzinfo) -> str:
    began = wording.clock(row.began_unix_s * 10**9, zone, date=True)[:-3]
    if row.ended_unix_s is None:
        return f"since <b>{began}</b>"
    return f"from <b>{began}</b> for {wording.span(row.ended_unix_s - row.began_unix_s)}"


def attained(explanation: Explanation) -> str:
    """Compliance with the objectives for this latency, or an empty text."""
    return "".join(
        f"<p class='note'>{_subject_of_counts(each, explanation.question.metric.value)}"
        f" {_verb(each)}:"
        f" <b>{wording.exact_percent(each.attained_ratio)}</b> of"
        f" {wording.counted(each.requests, 'request')} within {wording.seconds(each.threshold_s)},"
        f" {wording.exact_percent(each.baseline_attained_ratio)} before; the target"
        f"{'' if each.whole else ' of the whole objective'} is"
        f" {wording.exact_percent(1.0 - each.budget)}.</p>"
        for each in explanation.deciding
    )


def _verb(each: Attainment) -> str:
    if each.fell:
        return "was missed more often"
    return "was missed" if each.missed else "was met"


def _subject_of_counts(each: Attainment, metric: str) -> str:
    name = f"<b>{wording.for_html(each.slo, 63)}</b>"
    if each.whole:
        return f"Objective {name}"
    return f"Objective {name} (only its limit on {NAMES[metric]})"


def still_slow(
    explanation: Explanation, incidents: Sequence[IncidentRow], zone: tzinfo
) -> str | None:
    """A sentence if requests are slow although the latency has not grown, or else None."""
    for row in incidents:
        if row.ended_unix_s is None:
            name = wording.for_html(row.slo, 63)
            return f"<b>Still slow:</b> incident {name} {_incident_time(row, zone)}."
    worst = explanation.worst_missed
    if worst is None:
        return None
    return (
        f"<b>Still slow:</b> {wording.percent(1.0 - worst.attained_ratio)} of requests take"
        f" longer than {wording.seconds(worst.threshold_s)};"
        f" {wording.for_html(worst.slo, 63)} allows {wording.exact_percent(worst.budget)}."
    )


def compared(explanation: Explanation, zone: tzinfo, before: IncidentRow | None = None) -> str:
    """The compared ranges. If the baseline ends before an incident, the text names the incident."""
    window, baseline = explanation.question.window, explanation.question.baseline
    date = window.to_unix_ns - baseline.from_unix_ns > DAY_S * 10**9 or (
        baseline.to_unix_ns - window.from_unix_ns > DAY_S * 10**9
    )
    why = "" if before is None else f", before incident {wording.for_html(before.slo, 63)} began"
    return f"Compared: {_span(window, zone, date)} with {_span(baseline, zone, date)}{why}."


def _span(span: Span, zone: tzinfo, date: bool) -> str:
    start = wording.clock(span.from_unix_ns, zone, date=date)
    end = wording.clock(span.to_unix_ns, zone, date=date)
    return f"{start} to {end} ({wording.span(span.seconds)})"


def selected_range(window: Span, zone: tzinfo) -> str:
    """The beginning of a sentence about the selected range, if the page also shows a whole
    incident."""
    return f"<b>Selected range, {_span(window, zone, window.seconds > DAY_S)}:</b> "


def reason(explanation: Explanation, selected: str = "") -> str:
    """The first cause with its actions, the other causes, and the unexplained share.

    `selected` is from `selected_range`, or is empty.
    """
    if not explanation.causes:
        text = f"<p class='cause'>{selected}No known cause explains the increase.</p>"
        return f"<div class='why'>{text}</div>"
    first, *others = explanation.causes
    lines = [
        f"<p class='cause'>{selected}{cause_words.first_cause(first)}</p>",
        *(f"<p class='lever'><b>Try:</b> {cause_words.lever(lever)}</p>" for lever in first.levers),
    ]
    lines += [
        f"<p class='other'>Also {cause_words.share(other)}: {cause_words.summary(other)}.</p>"
        for other in others
    ]
    if explanation.unexplained is not None and explanation.unexplained >= LEFT:
        left = cause_words.share_text(
            explanation.unexplained, explanation.unexplained_low, explanation.unexplained_high
        )
        lines.append(f"<p class='other'>Unexplained: {left} of the increase.</p>")
    return f"<div class='why'>{''.join(lines)}</div>"


def method(explanation: Explanation, frozen_link: str | None) -> str:
    """How the shares were computed.

    `frozen_link` is the address of the same range without refreshes, or None.
    """
    if explanation.replay is not None or explanation.not_replayed is not None:
        text = wording.for_html(method_sentence(explanation, wording.seconds), 300)
    elif frozen_link is not None:
        text = (
            f"{method_sentence(explanation, wording.seconds)} "
            f"<a class='action' href='{html.escape(frozen_link)}' target='_self'>Test by replay</a>"
        )
    else:
        text = "Shares: estimates from the step ledger. The range is being replayed with and"
        text += " without each cause …"
    return f"<p class='note'>{text}</p>"


def evidence(cause: Cause, *, with_levers: bool) -> str:
    """The evidence for a cause. With `with_levers`, the actions against the cause follow."""
    known = [each for each in cause.evidence if each.now is not None or each.baseline is not None]
    shown = (
        "<p class='note'>The only evidence is the increase of the latency, because no server"
        " reported its state.</p>"
    )
    if known:
        shown = table(("evidence", "before", "now"), map(_row, known))
    levers = "".join(
        f"<p class='lever'><b>Try:</b> {cause_words.lever(one)}</p>" for one in cause.levers
    )
    return f"{shown}{levers if with_levers else ''}"


def _row(each: Evidence) -> tuple[str, str, str]:
    what = wording.for_html(each.what, 120)
    return what, wording.number(each.baseline), wording.number(each.now)


def title(cause: Cause) -> str:
    """A cause's title. It contains no share, so that it stays the same on each refresh."""
    words = cause.id.split("_")
    shown = [word.upper() if word in ("kv", "cpu", "gpu") else word for word in words]
    return first_upper(" ".join(shown))


def hits(explanation: Explanation) -> str:
    """The kinds of requests that are slow more often than others, such as "requests of tenant
    acme"."""
    shown = explanation.dimensions[:MAX_HITS]
    tested = wording.counted(explanation.dimensions_tested, "kind") + " of request"
    if not shown:
        return (
            "<p class='note'>No kind of request is slow more often than by chance;"
            f" {tested} were tested.</p>"
        )
    rows = [
        (
            _kind_of_request(hit),
            f"<b>{_times(hit.risk_ratio)}</b>",
            f"{_times(hit.low)} to {_times(hit.high)}",
            wording.count(hit.requests),
        )
        for hit in shown
    ]
    more = len(explanation.dimensions) - len(shown)
    also = f" Kinds with smaller factors are not listed ({more})." if more else ""
    found = table(("requests", "× likelier", "95 % interval", "number"), rows)
    return f"{found}<p class='note'>{tested} were tested.{also}</p>"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 99.5 else f"{ratio:.1f}×"


def _kind_of_request(hit: RiskRatio) -> str:
    names, values = hit.dimension.split(" & "), hit.value.split(" & ")
    if len(names) != len(values):  # a label's value contains an ampersand
        names, values = [hit.dimension], [hit.value]
    known = dict(zip(names, values, strict=True))
    tenant = known.pop("tenant", None)
    text = "requests" if tenant is None else f"{_value(tenant)} requests"
    for name, value in known.items():
        if name in _TOKENS:
            text += f" with {_value(value)} {_TOKENS[name]}"
        elif name in _PLACES:
            text += f" {_PLACES[name]} {_value(value)}"
        else:
            text += f" with {wording.for_html(name.replace('_', ' '), 80)} {_value(value)}"
    return text


def _value(value: str) -> str:
    return f"<b>{wording.for_html(value)}</b>"


def network(explanation: Explanation) -> str:
    """The regions from which the network time grew."""
    return "".join(
        f"<p class='notice'>{wording.for_html(network_sentence(each, wording.seconds), 400)}</p>"
        for each in explanation.network
    )


def contradictions(explanation: Explanation) -> str:
    """The reasons to doubt the verdict."""
    return "".join(
        f"<p class='notice'>{wording.for_html(each, 400)}</p>"
        for each in explanation.contradictions
    )
