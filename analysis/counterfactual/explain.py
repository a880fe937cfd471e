"""Replace the shares of an explanation with shares from a counterfactual replay."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from sqlalchemy import Engine

from analysis.access.evidence import explained_where
from analysis.counterfactual.effects import with_effects
from analysis.counterfactual.shares import (
    COLUMN,
    CauseShares,
    Tails,
    UndecidedError,
    decide,
    removable_factors,
    untested,
)
from analysis.recorded_traffic import NotReplayableError, Recorded, read_recorded
from diagnosis.claim import NAMED_SHARE
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict, ShareMethod
from diagnosis.question import Metric, Question, Span
from store.access.restricted import with_masked_rows
from store.columns.request_columns import request_columns
from telemetry.window import Window

MAX_REQUESTS: Final = 8_000
"""Maximum number of requests in each replayed range. With four factors, there are 240 replays of
the window and 27 of the baseline, which take up to 17 s (docs/benchmarks.md#shares-by-replay)."""


def with_replayed_shares(
    engine: Engine, explanation: Explanation, progress: Callable[[], None] = lambda: None
) -> Explanation:
    """An explanation whose shares come from replays, with confidence intervals.

    If the replay cannot determine the shares, the explanation keeps its shares without intervals.
    `not_replayed` then states the reason.

    Raises:
        NotAllowed: the question is about requests that the reader may not see.
    """
    question = explanation.question
    explained_where(engine, question.where)
    engine = with_masked_rows(engine)

    def read(tails: Tails) -> tuple[Recorded, Recorded]:
        parts = _slowest_part(engine, question, tails), _last_part(engine, question)
        window, baseline = (
            read_recorded(engine, each, list(question.where), in_parts=True) for each in parts
        )
        return window, baseline

    found, window = with_shares_of(explanation, read, progress)
    if window is None:
        return found
    return replace(found, causes=with_effects(found.causes, window, _tails(explanation)))


def with_shares_of(
    explanation: Explanation,
    read: Callable[[Tails], tuple[Recorded, Recorded]],
    progress: Callable[[], None] = lambda: None,
) -> tuple[Explanation, Recorded | None]:
    """The explanation with shares from replays, and the replayed window. If nothing can be
    replayed, the explanation keeps its earlier shares, and the window is None.

    Args:
        read: returns the window and the baseline to replay.
    """
    if (known := without_replay(explanation)) is not None:
        return known, None
    causes = _causes_to_test(explanation)
    tails = _tails(explanation)
    try:
        window, baseline = read(tails)
        decision = decide(window, baseline, causes, tails, progress, explanation.others)
    except (NotReplayableError, UndecidedError) as error:
        return replace(explanation, not_replayed=str(error)), None
    return _with_decision(explanation, decision), window


def without_replay(explanation: Explanation) -> Explanation | None:
    """The final explanation, or None if a replay must compute it."""
    causes = _causes_to_test(explanation)
    if explanation.verdict is not ExplanationVerdict.INCIDENT or not causes:
        return explanation
    if explanation.question.metric is Metric.FIRST_CONTENT:
        reason = "a replay does not divide the output into reasoning and content"
        return replace(explanation, not_replayed=reason)
    try:
        removable_factors(causes)
    except UndecidedError as error:
        return replace(explanation, not_replayed=str(error))
    return None


def _causes_to_test(explanation: Explanation) -> Sequence[Cause]:
    return explanation.causes or untested((), explanation.others)


def _tails(explanation: Explanation) -> Tails:
    assert explanation.tail_share is not None
    question = explanation.question
    return Tails(question.metric, explanation.tail_share, question.where)


def _with_decision(explanation: Explanation, decision: CauseShares) -> Explanation:
    """The shares from the replays, largest first.

    Shares below `NAMED_SHARE` are left out."""
    causes = [
        replace(cause, share=share.value, low=share.low, high=share.high)
        for cause, share in zip(decision.causes, decision.shares, strict=True)
    ]
    causes.sort(key=lambda cause: -cause.share)
    return replace(
        explanation,
        causes=[cause for cause in causes if cause.share >= NAMED_SHARE],
        method=ShareMethod.COUNTERFACTUAL,
        unexplained=decision.unexplained.value,
        unexplained_low=decision.unexplained.low,
        unexplained_high=decision.unexplained.high,
        replay=decision.replay,
    )


def _slowest_part(engine: Engine, question: Question, tails: Tails) -> Window:
    """The part of the window with `MAX_REQUESTS` consecutive requests that contains the most slow
    requests."""
    window = _window(question.window)
    latency = COLUMN[question.metric]
    needed = ["received_unix_ns", "streamed", "outcome", latency, *question.where]
    columns = list(dict.fromkeys(needed))
    table = request_columns(engine, window, columns)
    if table.num_rows <= MAX_REQUESTS:
        return window
    latency_s = table[latency].to_numpy().astype(np.float64)
    latency_s[~tails.selected(table)] = np.nan
    slow = latency_s >= np.nanquantile(latency_s, 1 - tails.share)
    before = np.concatenate([[0], np.cumsum(slow)])
    first = int(np.argmax(before[MAX_REQUESTS:] - before[:-MAX_REQUESTS]))
    received = table["received_unix_ns"].to_numpy()
    return Window(int(received[first]), int(received[first + MAX_REQUESTS - 1]) + 1)


def _last_part(engine: Engine, question: Question) -> Window:
    """The end of the baseline, with at most its last `MAX_REQUESTS` requests."""
    window = _window(question.baseline)
    received = request_columns(engine, window, ["received_unix_ns"])["received_unix_ns"].to_numpy()
    if not received.size:
        return window
    # Data may be missing at the start of the baseline.
    return Window(int(received[-MAX_REQUESTS:][0]), window.to_unix_ns)


def _window(span: Span) -> Window:
    return Window(span.from_unix_ns, span.to_unix_ns)
