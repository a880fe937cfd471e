"""The text of a cause, as the Overview and Root cause pages show it.

Pure. The result is HTML in which all external text is escaped.
"""

from diagnosis.causes.registry import SUMMARIES
from diagnosis.claim import Lever
from diagnosis.explanation import Cause
from ui.kit import wording


def first_cause(cause: Cause) -> str:
    """Return one sentence with the cause's share, its name, and the tenant or replica."""
    return f"Cause of {share(cause)} of the increase: {summary(cause)}."


def share(cause: Cause) -> str:
    """Return the cause's share of the increase."""
    return f"<b>{wording.percent(cause.share)}</b>"


def summary(cause: Cause) -> str:
    """Return the cause's summary, with the replica or tenant that it belongs to."""
    place = ", ".join(
        f"{wording.for_html(key)} <b>{wording.for_html(value)}</b>"
        for key, value in cause.where.items()
    )
    return f"{wording.for_html(SUMMARIES[cause.id], 200)}{f' ({place})' if place else ''}"


def lever(tried: Lever) -> str:
    """Return an action, and the flag that applies it."""
    flag = f" <code>{wording.for_html(tried.flag, 200)}</code>" if tried.flag else ""
    return f"{wording.for_html(tried.action, 300)}{flag}"
