"""The names of metrics, labels and recorded series of objectives.

The names are those of the counters on Tailspan's `/metrics`, per objective (`slo`), and of the
series that the generated rules record from them. The name of a series over a window ends in the
window.
"""

from typing import Final

SLO: Final = "slo"
REASON: Final = "reason"

EVENTS: Final = "tailspan_slo_events_total"
GOOD_EVENTS: Final = "tailspan_slo_good_events_total"
EXCLUDED_EVENTS: Final = "tailspan_slo_excluded_events_total"
REQUESTS: Final = "tailspan_requests_total"

SEEN: Final = "slo:tailspan_seen:timestamp_seconds"
"""The evaluation time while the counters exist. Its minimum over a window is the time when the
counters first existed."""

PLACED: Final = "slo:tailspan_group_places:increase6h"
"""For Prometheus queries with `by`: the groups that have a place."""

TARGET: Final = "slo:tailspan_target:ratio"
BUDGET_LEFT: Final = "slo:tailspan_budget_left:ratio"
"""The share of the period's budget that is left; negative if overspent."""
PERIOD_START: Final = "slo:tailspan_period_start:timestamp_seconds"
PERIOD_END: Final = "slo:tailspan_period_end:timestamp_seconds"
"""The bounds of a calendar period, in unix seconds."""
PERIOD: Final = "slo:tailspan_period:info"
PERIOD_LABEL: Final = "period"
"""Label of the series that are recorded in a calendar period. Its value is the period's start."""
EXHAUSTED_IN: Final = "slo:tailspan_budget_exhausted_in:seconds"
"""How long the remaining budget lasts at the present burn rate. Absent if the budget does not burn,
or if a calendar period ends earlier."""

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
    """Return the series whose samples have their calendar period as a label."""
    return name.replace("slo:tailspan_", "slo:tailspan_period_")


def coverage(window: str) -> str:
    """Return the series of the share of a window in which the counters existed."""
    return f"slo:tailspan_coverage:ratio{window}"


def alerting_burn(window: str) -> str:
    """Return the series of a pair's long burn rate, which is absent unless the pair alerts.

    If several pairs share the long window, `window` also contains the short window and the
    severity.
    """
    return f"slo:tailspan_alerting_burn:ratio{window}"


def burn_rate(window: str) -> str:
    """Return the series of the burn rate, which is only for display. Alerts do not use it."""
    return f"slo:tailspan_burn_rate:ratio{window}"
