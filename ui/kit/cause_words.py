"""Describe a cause as HTML. Pure. External text is escaped."""

from analysis.cause_sentences import rough_share
from diagnosis.causes.registry import SUMMARIES
from diagnosis.claim import Lever
from diagnosis.explanation import Cause
from telemetry.printable import first_upper
from ui.kit import wording


def first_cause(cause: Cause) -> str:
    """A sentence with the cause's share of the increase and its summary."""
    if cause.low is None or cause.high is None:
        return f"<b>{first_upper(rough_share(cause.share))}</b> of the increase: {summary(cause)}."
    return f"Cause of {share(cause)} of the increase: {summary(cause)}."


def share(cause: Cause) -> str:
    """The cause's share of the increase."""
    return share_text(cause.share, cause.low, cause.high)


def share_text(share: float, low: float | None, high: float | None) -> str:
    """A percentage with its interval. Without an interval, the text calls it an estimate."""
    if low is None or high is None:
        return f"<b>{rough_share(share)}</b>"
    return f"<b>{wording.percent(share)}</b> [{wording.percent(low)} to {wording.percent(high)}]"


def summary(cause: Cause) -> str:
    """The cause's summary, with its replica or tenant."""
    place = ", ".join(
        f"{wording.for_html(key)} <b>{wording.for_html(value)}</b>"
        for key, value in cause.where.items()
    )
    return f"{wording.for_html(SUMMARIES[cause.id], 200)}{f' ({place})' if place else ''}"


def lever(tried: Lever) -> str:
    """An action against a cause: the advice, the vLLM flag, and the predicted effect."""
    flag = f" <code>{wording.for_html(tried.flag, 200)}</code>" if tried.flag else ""
    return f"{wording.for_html(tried.action, 300)}{flag}{_effect(tried)}"


def _effect(tried: Lever) -> str:
    effect = tried.predicted
    if effect is None:
        return ""
    between = ""
    if effect.low_s is not None and effect.high_s is not None:
        between = f" [{wording.seconds(effect.low_s)} to {wording.seconds(effect.high_s)}]"
    now, then = wording.seconds(effect.now_s), wording.seconds(effect.then_s)
    return f": P99 {now} → <b>{then}</b>{between}"
