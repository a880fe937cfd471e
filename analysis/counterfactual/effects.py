"""Predict the effects of an explanation's levers (proposed changes)."""

from collections.abc import Sequence
from dataclasses import replace

from analysis.advice import FEWER_DRAWS, shortens
from analysis.counterfactual.shares import COLUMN, Tails
from analysis.recorded_traffic import MIN_REQUESTS, Recorded
from analysis.what_if import WhatIfAnswer, WhatIfQuestion, predict_each
from diagnosis.claim import Effect, Lever
from diagnosis.explanation import Cause
from replay.edits import EditError, Edits, edits_of
from telemetry.window import Window


def with_effects(causes: Sequence[Cause], window: Recorded, tails: Tails) -> list[Cause]:
    """Add to the causes the predicted effects of their levers (proposed changes).

    Levers that would not shorten the latency are left out. `predicted` is None if no replay can
    predict the effect. If an engine restarted with other arguments in the window, the effects apply
    to the requests since then.
    """
    window = with_latest_arguments(window)
    changes = dict.fromkeys(
        lever.change for cause in causes for lever in cause.levers if lever.change is not None
    )
    answers = _answers(list(changes), window, tails)
    found = []
    for cause in causes:
        levers = [
            _with_effect(lever, answers.get(lever.change or ""), tails) for lever in cause.levers
        ]
        found.append(replace(cause, levers=[each for each in levers if each is not None]))
    return found


def _answers(changes: Sequence[str], window: Recorded, tails: Tails) -> dict[str, WhatIfAnswer]:
    question = WhatIfQuestion(window.window, Edits(), tails.equals)
    # Use only the requests for which the latency is defined, as for the shares.
    window = replace(window, counted=window.counted & tails.selected(window.requests))
    if window.counted.sum() < MIN_REQUESTS:
        return {}
    edits = {
        change: each for change in changes if (each := _edits(change, window.tenants)) is not None
    }
    answers = predict_each(window, question, list(edits.values()), FEWER_DRAWS)
    return {
        change: answer
        for change, answer in zip(edits, answers, strict=True)
        if answer.refused is None
    }


def with_latest_arguments(window: Recorded) -> Recorded:
    """The part of a window in which all engines have their latest arguments."""
    latest = list({(each.replica, each.engine): each for each in window.engines}.values())
    since_s = max(each.from_s for each in latest)
    if not since_s > window.lead_s:
        return replace(window, engines=latest)
    received_ns = window.requests["received_unix_ns"].to_numpy()
    from_ns = window.window.from_unix_ns + round((since_s - window.lead_s) * 1e9)
    return replace(
        window,
        window=Window(from_ns, window.window.to_unix_ns),
        engines=latest,
        counted=window.counted & (received_ns >= from_ns),
        lead_s=since_s,
    )


def _edits(change: str, tenants: Sequence[str]) -> Edits | None:
    """The edits that represent a proposed change.

    Return None if no replay can predict the effect of the change. For a tenant's rate limit, the
    replayed part must have a request of the tenant."""
    try:
        edits = edits_of([change])
    except EditError:
        return None
    return edits if {None, *tenants}.issuperset(rate.tenant for rate in edits.rates) else None


def _with_effect(lever: Lever, answer: WhatIfAnswer | None, tails: Tails) -> Lever | None:
    """The proposed change with its effect, or None if the change would not help."""
    if answer is None:
        return lever
    name = COLUMN[tails.metric]
    if not shortens(answer, name):
        return None
    now_s, then = answer.now[name]["p99"], answer.predicted[name]["p99"]
    if then.value is None or now_s is None:
        return lever
    return replace(lever, predicted=Effect(now_s, then.value, then.low, then.high))
