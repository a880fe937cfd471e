"""The texts of the What if page. Pure."""

import html
from collections.abc import Callable, Iterator
from typing import Final

from analysis.advice import Advice, AdviceAnswer
from analysis.what_if import Predicted, WhatIfAnswer
from analysis.what_if_search import FACTORS, SweepPoint, number_of, objectives_of
from telemetry.time_text import length
from ui.kit import tables, wording
from ui.views.what_if.read import SweepAnswer

NAMES: Final = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_max_s": "ITL max",
    "e2e_s": "E2E",
    "queue_s": "queue",
}
BINDS: Final = {
    "seats": "the limit max_num_seqs",
    "kv": "free KV blocks",
    "tokens": "the limit max_num_batched_tokens",
}
WAITS: Final = {
    "seats": "max_num_seqs",
    "kv": "KV blocks",
    "tokens": "max_num_batched_tokens",
}
SHOWN: Final = ("p50", "p99")
CANNOT_KEEP_UP: Final = "cannot keep up"
REJECTED_BECAUSE: Final = "longer than max_model_len or the queue is full"
EQUALLY_GOOD: Final = 1.01
"""A P99 is as good as the shortest P99 if it is at most this many times as long."""


def sentence(answer: WhatIfAnswer, latency: str) -> str:
    """The P99 of a latency now and after the change."""
    change = html.escape(", ".join(answer.edits))
    if answer.saturated:
        return (
            f"<b>With {change}, the engines {CANNOT_KEEP_UP}:</b> the queue is full, or grows for "
            "as long as the load lasts."
        )
    now, then = answer.now[latency]["p99"], answer.predicted[latency]["p99"]
    if now is None or then.value is None:
        return f"With {change}, there is no P99 of {NAMES[latency]} to predict."
    if then.low is not None and then.high is not None and then.low <= now <= then.high:
        return (
            f"With {change}, P99 of {NAMES[latency]} would be about the same: "
            f"<b>{wording.seconds(then.value)}</b>{interval(then)}, {wording.seconds(now)} now."
        )
    return (
        f"With {change}, P99 of {NAMES[latency]} would be "
        f"<b>{wording.seconds(then.value)}</b>{interval(then)} instead of "
        f"{wording.seconds(now)}."
    )


def interval(each: Predicted) -> str:
    """A space and the interval in brackets, or an empty text."""
    if each.low is None or each.high is None:
        return ""
    return f" [{wording.seconds(each.low)} to {wording.seconds(each.high)}]"


def present(swept: SweepAnswer) -> str:
    """The present value, in the same form as the values of the sweep."""
    for each in swept.points:
        if number_of(each.value) == swept.present:
            return each.value
    unit = "x" if swept.points[0].value.endswith("x") else ""
    return f"{swept.present:.10g}{unit}"


def sweep_sentence(swept: SweepAnswer, latency: str) -> str:
    """The highest load that the engines serve, or the best value of a setting."""
    name, title = html.escape(swept.name), NAMES[latency]
    now = swept.points[0].answer.now[latency]["p99"]
    kept = {
        each.value: found
        for each in swept.points
        if not each.answer.saturated
        and (found := each.answer.predicted[latency]["p99"]).value is not None
    }
    rejected = {each.value: _rejected(each) for each in swept.points}
    if all(each.answer.saturated for each in swept.points):
        return f"<b>The engines {CANNOT_KEEP_UP}</b> with any of these values of {name}."
    if now is None or not kept:
        return f"There is no P99 of {title} to predict."
    if swept.name in FACTORS:
        highest = max(kept, key=number_of)
        return (
            f"The engines keep up with {name}={html.escape(highest)}"
            f"{'' if len(kept) == len(swept.points) else ' at most'}: their queues do not grow."
            f" P99 of {title} would be "
            f"<b>{wording.seconds(kept[highest].value)}</b>{interval(kept[highest])} instead of "
            f"{wording.seconds(now)}.{rejected[highest]}{_meeting_slos(swept)}"
        )
    shortest = min(each.value or 0.0 for each in kept.values())
    best = next(
        value for value, each in kept.items() if (each.value or 0.0) <= shortest * EQUALLY_GOOD
    )
    found = kept[best]
    if (found.high if found.high is not None else found.value or 0.0) < now:
        return (
            f"With {name}={html.escape(best)}, P99 of {title} would be shortest: "
            f"<b>{wording.seconds(found.value)}</b>{interval(found)} instead of "
            f"{wording.seconds(now)}.{rejected[best]}"
        )
    return (
        f"No value of {name} makes P99 of {title} clearly shorter than now, "
        f"<b>{wording.seconds(now)}</b>. The shortest is {wording.seconds(found.value)}"
        f"{interval(found)} with {html.escape(best)}."
    )


def _rejected(point: SweepPoint) -> str:
    """The latencies of rejected requests are unknown, so the finding names these requests."""
    number = point.answer.rejected
    return f" {wording.counted(number, 'request')} would be rejected." if number else ""


def _meeting_slos(swept: SweepAnswer) -> str:
    """The highest load at which all SLOs are met. The engines may keep up with a higher load."""
    judged = [each for each in swept.points if each.answer.objectives and not each.answer.saturated]
    if not judged:
        return ""
    slos = objectives_of(swept.points).keys()
    met = [
        each.value
        for each in judged
        if slos
        == {
            one.slo for one in each.answer.objectives if (one.good_ratio.value or 0.0) >= one.target
        }
    ]
    if not met:
        return " No value meets the SLOs."
    return (
        f" The SLOs are met up to {html.escape(swept.name)}={html.escape(max(met, key=number_of))}."
    )


def sweep_table(swept: SweepAnswer, latency: str, link: Callable[[str], str]) -> str:
    """A table of the measured latency, and of the prediction for each value."""
    first, title = swept.points[0].answer, NAMES[latency]
    slos = objectives_of(swept.points)
    rejects = any(each.answer.rejected for each in swept.points)
    heads = [swept.name]
    for point in SHOWN:
        heads += [f"{title} {point.upper()}", "95 % interval"]
    heads += [*(f"{each} good" for each in slos), "$/h"]
    heads += [*(["rejected"] if rejects else []), "waits for"]
    waits = WAITS.get(first.binds_now, "nothing")
    now = [f"{html.escape(present(swept))} (now, measured)"]
    for point in SHOWN:
        now += [wording.seconds(first.now[latency][point]), ""]
    now += [wording.exact_percent(share) for share in slos.values()]
    now += [wording.usd(first.usd_per_hour), *([""] if rejects else []), waits]
    rows = [now]
    for each in swept.points:
        answer = each.answer
        row = [wording.anchor(link(",".join(answer.edits)), html.escape(each.value))]
        for point in SHOWN:
            found = answer.predicted[latency][point]
            row += (
                [CANNOT_KEEP_UP, ""]
                if answer.saturated
                else [f"<b>{wording.seconds(found.value)}</b>", interval(found).strip(" []")]
            )
        ratios = {one.slo: one.good_ratio.value for one in answer.objectives}
        shares = (ratios.get(slo) for slo in slos)
        row += [wording.exact_percent(share) for share in shares]
        row.append(wording.usd(answer.predicted_usd_per_hour))
        row += [f"{answer.rejected:,}"] if rejects else []
        rows.append([*row, WAITS.get(answer.binds, "nothing")])
    return tables.table([html.escape(each) for each in heads], rows, "short")


def sweep_notes(swept: SweepAnswer) -> Iterator[str]:
    """Notes on missing intervals, saturation, omitted requests and assumptions."""
    if not swept.intervals:
        yield (
            "There are no intervals, because the range has too many requests. Follow the link of a "
            "value to see its intervals."
        )
    if any(each.answer.saturated for each in swept.points):
        yield (
            f"The engines {CANNOT_KEEP_UP} with some values: the queue is full, or grows for as "
            "long as the load lasts, so no latency is shown."
        )
    if any(each.answer.rejected for each in swept.points):
        yield f"Requests are rejected if they are {REJECTED_BECAUSE}."
    yield from left_out(swept.points[0].answer)
    assumed = [one for each in swept.points for one in each.answer.extrapolated]
    for text in dict.fromkeys(assumed):
        yield f"Assumed: {html.escape(text)}."


def left_out(answer: WhatIfAnswer) -> Iterator[str]:
    """A note for each reason why requests were left out, and a note on the requests that remain."""
    for why, number in answer.left_out.items():
        yield f"{wording.counted(number, 'request')} left out: {html.escape(why)}."
    if answer.left_out:
        yield (
            f"The prediction is about the other {wording.counted(answer.requests, 'request')},"
            f" received in {length(answer.window.to_unix_ns - answer.window.from_unix_ns)}."
        )


def table(answer: WhatIfAnswer) -> str:
    """A table of the measured, replayed and predicted percentiles."""
    rows = []
    for name, title in NAMES.items():
        for point in SHOWN:
            each, then = answer.reproduced[name][point], answer.predicted[name][point]
            error = wording.UNKNOWN if each.error_ratio is None else f"{each.error_ratio:+.1%}"
            rows.append(
                (
                    f"{title} {point.upper()}",
                    wording.seconds(each.measured),
                    f"{wording.seconds(each.replayed)} ({error})",
                    f"<b>{wording.seconds(then.value)}</b>",
                    interval(then).strip(" []"),
                )
            )
    heads = ("latency", "measured", "replayed unchanged", "predicted", "95 % interval")
    return tables.table(heads, rows, "short")


def advice(advised: AdviceAnswer, link: Callable[[str], str]) -> str:
    """The changes to try, with notes."""
    title = NAMES[advised.metric]
    heads = ("change", "setting", f"{title} P50", f"{title} P99", "$/h", "needs")
    helps = any(each.helps for each in advised.advice)
    none = "" if helps else f"<p class='note'>No change shortens the P99 of {title} here.</p>"
    notes = [
        *(left_out(advised.advice[0].answer) if advised.advice else ()),
        *(f"Not judged: {html.escape(each)}." for each in advised.unknown),
    ]
    below = "".join(f"<p class='note'>{each}</p>" for each in notes)
    return none + tables.table(heads, [_lever(each, link) for each in advised.advice]) + below


def _lever(each: Advice, link: Callable[[str], str]) -> tuple[str, ...]:
    answer, change = each.answer, ",".join(each.lever.edits.listed())
    now, then = answer.usd_per_hour, answer.predicted_usd_per_hour
    p99 = CANNOT_KEEP_UP if answer.saturated else _percent(each.gain)
    return (
        wording.anchor(link(change), html.escape(each.lever.name)),
        html.escape(change),
        _percent(each.median_gain),
        f"<b>{p99}</b>" if each.helps else p99,
        wording.UNKNOWN if now is None or then is None else f"{then - now:+.2f}",
        html.escape(each.lever.precondition),
    )


def _percent(gain: Predicted) -> str:
    return wording.UNKNOWN if gain.value is None else f"{gain.value:+.0%}"


def notes(answer: WhatIfAnswer) -> Iterator[str]:
    """Notes about SLOs, cost, the reasons why requests wait, and the prediction's assumptions."""
    for slo in answer.objectives:
        then = slo.good_ratio
        if then.value is None or then.low is None or then.high is None:
            continue
        percent = wording.exact_percent
        yield (
            f"SLO {html.escape(slo.slo)}: {percent(slo.good_ratio_now)} good now,"
            f" {percent(then.value)} predicted [{percent(then.low)} to {percent(then.high)}]."
        )
    if answer.usd_per_hour is not None and answer.predicted_usd_per_hour is not None:
        before, after = answer.usd_per_1000_requests, answer.predicted_usd_per_1000_requests
        each = (
            f". The cost of all requests, idle time included, is {wording.usd(after)} per 1,000 "
            f"after the change ({wording.usd(before)} now)"
            if after is not None
            else ""
        )
        yield (
            f"The engines cost {wording.usd(answer.usd_per_hour)} per hour now, "
            f"{wording.usd(answer.predicted_usd_per_hour)} after the change{each}."
        )
    waits = BINDS.get(answer.binds)
    yield f"Requests would wait for {waits}." if waits else "No request would wait in the queue."
    if answer.rejected:
        yield (
            f"{wording.counted(answer.rejected, 'request')} would be rejected, because they are "
            f"{REJECTED_BECAUSE}."
        )
    yield from left_out(answer)
    for each in answer.extrapolated:
        yield f"Assumed: {html.escape(each)}."
