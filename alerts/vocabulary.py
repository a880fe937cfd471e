"""The names of metrics, labels and recorded series of objectives.

The counters on Tailspan's `/metrics`, per objective (`slo`), and the series that the generated
rules record from them. Names of series over a window end in the window.
"""

from typing import Final

SLO: Final = "slo"
REASON: Final = "reason"

EVENTS: Final = "tailspan_slo_events_total"
GOOD_EVENTS: Final = "tailspan_slo_good_events_total"
EXCLUDED_EVENTS: Final = "tailspan_slo_excluded_events_total"
REQUESTS: Final = "tailspan_requests_total"

SEEN: Final = "slo:tailspan_seen:timestamp_seconds"
"""The time, while the counters exist: its minimum over a window is when they began."""

PLACED: Final = "slo:tailspan_group_places:increase6h"
"""For Prometheus queries with `by`: the groups that have a place."""

TARGET: Final = "slo:tailspan_target:ratio"
BUDGET_LEFT: Final = "slo:tailspan_budget_left:ratio"
"""The share of the period's budget that is left; below 0 if overspent."""
PERIOD_START: Final = "slo:tailspan_period_start:timestamp_seconds"
PERIOD_END: Final = "slo:tailspan_period_end:timestamp_seconds"
"""The bounds of a calendar period, in unix seconds."""
PERIOD: Final = "slo:tailspan_period:info"
PERIOD_LABEL: Final = "period"
"""The start of a calendar period as a label of the series recorded in it."""
EXHAUSTED_IN: Final = "slo:tailspan_budget_exhausted_in:seconds"
"""How long the remaining budget lasts at the present burn rate; absent if nothing burns, or if a
calendar period ends before."""

ALERT_BURNING: Final = "TailspanBudgetBurn"
ALERT_HELD_BACK: Final = "TailspanBudgetBurnHeldBack"
ALERT_HUNG: Final = "TailspanEngineHung"
ALERT_BLIND: Final = "TailspanObjectiveBlind"
ALERT_ABSENT: Final = "TailspanObjectiveAbsent"
ALERT_CALENDAR: Final = "TailspanCalendarEnds"


def events(window: str) -> str:
    """Return the series of all events of a window."""
    return f"slo:tailspan_events:increase{window}"


def bad_events(window: str) -> str:
    """Return the series of bad events of a window."""
    return f"slo:tailspan_bad_events:increase{window}"


def in_period(name: str) -> str:
    """Return the series that has the calendar period of each sample as a label."""
    return name.replace("slo:tailspan_", "slo:tailspan_period_")


def coverage(window: str) -> str:
    """Return the series of the share of a window in which the counters existed."""
    return f"slo:tailspan_coverage:ratio{window}"


def alerting_burn(window: str) -> str:
    """Return the series of a pair's long burn rate, absent unless the pair alerts.

    If pairs share the long window, `window` also contains the short window and the severity.
    """
    return f"slo:tailspan_alerting_burn:ratio{window}"


def burn_rate(window: str) -> str:
    """Return the series of the burn rate. It is for display; no alert uses it."""
    return f"slo:tailspan_burn_rate:ratio{window}"
