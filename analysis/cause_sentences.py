"""Sentences about causes, for commands, pages and alerts. Pure."""

from collections.abc import Callable
from typing import Final

from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Cause, Explanation, NetworkGrowth
from telemetry.printable import first_upper

NAMES: Final = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl_max": "ITL max",
    "e2e": "E2E",
    "queue": "queueing",
    "first_content": "first content",
}


MAJORITY_SHARE: Final = 0.5
"""If a share that was computed without a replay (by accounting) is above this value, texts call the
cause "probably most" of the growth. In simulations, "most" was correct for 94 % of single faults,
and for 63 % of pairs of faults. More precise words were wrong more often
(docs/benchmarks.md#shares-by-replay)."""


def rough_share(share: float) -> str:
    """Describe in words a share that was computed without a replay.

    The percentage of such a share is not reliable.
    """
    return "probably most" if share > MAJORITY_SHARE else "a part"


def share_text(share: float, low: float | None, high: float | None) -> str:
    """Format a share.

    If a replay computed the share, the text is a percentage with its confidence interval. If no
    replay computed it, the text is words.
    """
    if low is None or high is None:
        return rough_share(share)
    return f"{share:.0%} [{low:.0%} to {high:.0%}]"


def first_cause_sentence(explanation: Explanation) -> str | None:
    """Return the largest cause, its share and an action, or None if there are no causes."""
    if not explanation.causes:
        return None
    first = explanation.causes[0]
    latency = NAMES[explanation.question.metric.value]
    share = share_text(first.share, first.low, first.high)
    sentence = f"{first_upper(share)} of the growth of {latency}: {cause_text(first)}."
    if first.levers:
        lever = first.levers[0]
        sentence += f" Try: {lever.action}{f', {lever.flag}' if lever.flag else ''}."
    return sentence


def network_sentence(growth: NetworkGrowth, seconds: Callable[[float | None], str]) -> str:
    """A sentence about the growth of the time outside the servers."""

    def median(value_s: float, interval_s: tuple[float, float]) -> str:
        low, high = map(seconds, interval_s)
        return f"{seconds(value_s)} [{low} to {high}]"

    return (
        f"Outside the servers (network_or_client): the network time of probes from {growth.region}"
        f" rose from {median(growth.baseline_s, growth.baseline_interval_s)} to"
        f" {median(growth.now_s, growth.now_interval_s)} (median of {growth.probes:,} probes). The"
        " latencies of requests do not contain this time."
    )


def method_sentence(explanation: Explanation, seconds: Callable[[float | None], str]) -> str:
    """A sentence that states how the shares of the causes were computed."""
    replay = explanation.replay
    if replay is not None:
        return (
            f"Shares: from replays of {replay.requests:,} requests with and without each cause,"
            f" with 95 % intervals. Mean of the slow requests: {seconds(replay.now_s)} measured,"
            f" {seconds(replay.replayed_now_s)} replayed. Baseline: {seconds(replay.baseline_s)}"
            f" measured, {seconds(replay.replayed_baseline_s)} replayed."
        )
    ledger = "Shares: estimates from the step ledger, without intervals."
    if explanation.not_replayed is None:
        return ledger
    return f"{ledger} No replay: {explanation.not_replayed}."


def cause_text(cause: Cause) -> str:
    """The description of a cause, with its labels."""
    where = ", ".join(f"{key} {value}" for key, value in cause.where.items())
    return f"{SUMMARIES[cause.id]}{f' ({where})' if where else ''}"
