"""Names of objectives' metrics, labels and recorded series.

The counters are on `/metrics`. The generated rules record series from them.
"""

from typing import Final

SLO: Final = "slo"
REASON: Final = "reason"

EVENTS: Final = "tailspan_slo_events_total"
GOOD_EVENTS: Final = "tailspan_slo_good_events_total"
EXCLUDED_EVENTS: Final = "tailspan_slo_excluded_events_total"
REQUESTS: Final = "tailspan_requests_total"
PROBES: Final = "tailspan_probe_results_total"

SEEN: Final = "slo:tailspan_seen:timestamp_seconds"
"""The time of an evaluation, recorded while the counters exist. Its minimum over a window is the
time at which the counters first existed."""

SLOTS: Final = "slo:tailspan_group_slots:increase6h"
"""The groups that are counted separately, for Prometheus queries with `by`."""

TARGET: Final = "slo:tailspan_target:ratio"
BUDGET_LEFT: Final = "slo:tailspan_budget_left:ratio"
"""The share of the budget that is left. It is negative if the budget is overspent."""
PERIOD_START: Final = "slo:tailspan_period_start:timestamp_seconds"
PERIOD_END: Final = "slo:tailspan_period_end:timestamp_seconds"
"""The end of the current calendar period, in unix seconds."""
PERIOD: Final = "slo:tailspan_period:info"
PERIOD_LABEL: Final = "period"
"""The label with the start of the calendar period."""
EXHAUSTED_IN: Final = "slo:tailspan_budget_exhausted_in:seconds"
"""Seconds until the budget is spent, at the current burn rate. Absent if this rate is 0, or if a
calendar period ends first."""

ALERT_BURNING: Final = "TailspanBudgetBurn"
ALERT_HELD_BACK: Final = "TailspanBudgetBurnHeldBack"
ALERT_HUNG: Final = "TailspanEngineHung"
ALERT_BLIND: Final = "TailspanObjectiveBlind"
ALERT_ABSENT: Final = "TailspanObjectiveAbsent"
ALERT_CALENDAR: Final = "TailspanCalendarEnds"


def events(window: str) -> str:
    """Name of the series with the number of all events in a window."""
    return f"slo:tailspan_events:increase{window}"


def bad_events(window: str) -> str:
    """Name of the series with the number of bad events in a window."""
    return f"slo:tailspan_bad_events:increase{window}"


def in_period(name: str) -> str:
    """The name of the series that has the calendar period as a label."""
    return name.replace("slo:tailspan_", "slo:tailspan_period_")


def coverage(window: str) -> str:
    """Name of the series with the share of a window in which the counters existed."""
    return f"slo:tailspan_coverage:ratio{window}"


def alerting_burn(window: str) -> str:
    """Name of the series with the burn rate of a pair's long window, recorded only while the pair
    alerts. If several pairs have the same long window, `window` also contains the short window and
    the severity."""
    return f"slo:tailspan_alerting_burn:ratio{window}"


def burn_rate(window: str) -> str:
    """Name of the series with a window's burn rate, for display. Alert conditions do not use it:
    they compare numbers of events."""
    return f"slo:tailspan_burn_rate:ratio{window}"
