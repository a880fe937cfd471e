"""Compare the latencies before and after the latest deploy, in a sentence.

A deploy changes a server's version or configuration. A comparison takes about a second, so it runs
in the background. `analysis.compare.deploys.STEPS_S` lists the times after a deploy at which the
comparison is repeated.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, Final

import streamlit as st

from analysis.compare.answer import DecisionResult
from analysis.compare.deploys import (
    QUANTILE,
    Deploy,
    DeployAnswer,
    compare_deploy,
    metrics_of_interest,
    min_requests,
    missing,
)
from analysis.compare.question import CompareError
from analysis.compare.sentences import name_of, short_finding
from telemetry.printable import first_upper
from telemetry.store_errors import NotAllowed
from telemetry.window import Window
from ui.frame.address import link
from ui.frame.background import background
from ui.frame.context import Context
from ui.frame.view import LATENCIES, View
from ui.kit import wording
from ui.kit.terms import LATENCY_NAMES

MAX_SENTENCES: Final = 2
LINK: Final = "Compare before and after"
RESTART: Final = (
    "A restart alone may also change latencies; the 95 % intervals do not include this effect."
)


@dataclass(frozen=True, slots=True)
class DeployNotice:
    """A deploy, and the page element that shows the sentence about the deploy."""

    element: Any
    deploy: Deploy


def show(context: Context, deploy: Deploy) -> DeployNotice:
    """Draw the sentence with the newest comparison that was computed."""
    notice = DeployNotice(st.empty(), deploy)
    _draw(context, notice)
    return notice


def complete(context: Context, notice: DeployNotice) -> None:
    """Start a newer comparison if it is due. Call this after everything else is drawn.

    A page that is not live waits for the comparison.
    """
    engine, deploy = context.engine, notice.deploy
    after = deploy.after(context.window.to_unix_ns)
    if after is None:
        return
    metrics = metrics_of_interest(context.objectives.counted)

    def compute() -> DeployAnswer | str:
        try:
            return compare_deploy(engine, deploy, after, metrics)
        except (CompareError, NotAllowed) as error:
            return str(error)

    running = background(engine).start(_subject(context, deploy), (after, metrics), compute)
    if running is not None and not context.view.live:
        running.result()
        _draw(context, notice)


def _subject(context: Context, deploy: Deploy) -> tuple[object, ...]:
    # For a past range, the comparison must not use data after the range.
    past = None if context.view.live else deploy.after(context.window.to_unix_ns)
    return ("deploy", deploy, past)


def _draw(context: Context, notice: DeployNotice) -> None:
    found = background(context.engine).newest(_subject(context, notice.deploy))
    text = sentence(notice.deploy, found, context.view, context.window, context.zone)
    notice.element.html(f"<p class='note'>{text}</p>")


def sentence(
    deploy: Deploy,
    found: DeployAnswer | str | None,
    view: View,
    window: Window,
    zone: tzinfo,
) -> str:
    """One or two sentences about a deploy as HTML. Pure.

    `found` is the comparison, or the reason why there is no comparison. It is None if the
    comparison is not computed yet.
    """
    change = deploy.change
    at = _minute(change.from_unix_ns, window, zone)
    what = f"{change.what} changed at {at}."
    if found is None:
        after = deploy.after(window.to_unix_ns)
        ends = (deploy.before, after or Window(change.to_unix_ns, window.to_unix_ns))
        return what if after is None else f"{what} {_link(view, *ends)}"
    if isinstance(found, str):
        return f"{what} No comparison: {html.escape(found)}."
    since = f"Since the deploy at {at} ({_changed_thing(change.what)}), "
    sentences = _findings(found.found)
    metric = found.found[0].question.metric
    where = _link(replace(view, latency=LATENCIES[metric]), found.before, found.after)
    scope = "<b>All requests:</b> " if view.equals else ""
    return f"{scope}{since}{html.escape(' '.join(sentences))} {where}"


def _minute(at_unix_ns: int, window: Window, zone: tzinfo) -> str:
    """An instant to the minute. It has a date if the range ends on another day."""
    day, _, at = wording.clock(at_unix_ns, zone, date=True)[:16].partition(" ")
    last = wording.clock(window.to_unix_ns, zone, date=True)
    return at if last.startswith(day) else f"{day} {at}"


def _findings(found: Sequence[DecisionResult]) -> list[str]:
    few = [each for each in found if missing(each)]
    decided = [each for each in found if not missing(each)]
    sentences = [f"{short_finding(each)}." for each in decided[:MAX_SENTENCES]]
    if not sentences:
        return [_too_few(max(few, key=missing))]
    if any(map(_lacks_restart, decided[:MAX_SENTENCES])):
        sentences.append(RESTART)
    return [sentences[0], *map(first_upper, sentences[1:])]


def _lacks_restart(found: DecisionResult) -> bool:
    """Whether an interval does not include the effect of a restart, because it is unknown."""
    restart = found.restart
    return found.decision.ratio is not None and restart is not None and restart.log_sd is None


def _too_few(found: DecisionResult) -> str:
    latency = LATENCY_NAMES[LATENCIES[found.question.metric]]
    return (
        f"{wording.counted(found.requests_after, 'request')} with a known {latency} arrived;"
        f" {missing(found):,} more are needed to compare {name_of(found)} (at least"
        f" {min_requests(QUANTILE):,})."
    )


def _changed_thing(what: str) -> str:
    return what.removeprefix("The ")


def _link(view: View, before: Window, after: Window) -> str:
    compared = replace(
        view, page="compare", baseline=before, equals={}, quantile=QUANTILE, split=""
    )
    href = html.escape(link(compared.between(after.from_unix_ns, after.to_unix_ns)))
    return f"<a href='{href}'>{LINK}</a>"
