"""Sentences about causes, for commands, pages and alerts. Pure."""

from collections.abc import Callable
from typing import Final

from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Cause, Explanation

NAMES: Final = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl_max": "ITL max",
    "e2e": "E2E",
    "queue": "queueing",
}


def first_cause_sentence(explanation: Explanation) -> str | None:
    """Return a sentence with the first cause, its share and an action, or None without causes."""
    if not explanation.causes:
        return None
    first = explanation.causes[0]
    latency = NAMES[explanation.question.metric.value]
    sentence = f"{first.share:.0%} of the growth of {latency}: {cause_text(first)}."
    if first.levers:
        lever = first.levers[0]
        sentence += f" Try: {lever.action}{f', {lever.flag}' if lever.flag else ''}."
    return sentence


def method_sentence(explanation: Explanation, seconds: Callable[[float | None], str]) -> str:
    """Return how the shares of the causes were computed.

    Args:
        explanation: an explanation with causes.
        seconds: formats a duration.
    """
    replay = explanation.replay
    if replay is not None:
        return (
            f"Shares: from replays of {replay.requests:,} requests with and without each cause,"
            f" with 95 % intervals. Mean of the slow requests: {seconds(replay.now_s)} measured,"
            f" {seconds(replay.replayed_now_s)} replayed. Baseline: {seconds(replay.baseline_s)}"
            f" measured, {seconds(replay.replayed_baseline_s)} replayed."
        )
    ledger = "Shares: from the step ledger, without intervals."
    if explanation.not_replayed is None:
        return ledger
    return f"{ledger} No replay: {explanation.not_replayed}."


def cause_text(cause: Cause) -> str:
    """Return the description of a cause, with its labels."""
    where = ", ".join(f"{key} {value}" for key, value in cause.where.items())
    return f"{SUMMARIES[cause.id]}{f' ({where})' if where else ''}"
