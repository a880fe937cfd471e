"""The names that objectives have on `/metrics` and in the rules: each is spelled here alone.

Counters, per objective (`slo`), as they stand on Tailspan's `/metrics`; and the series that
the generated rules record from them, whose names end in the window they are over.
"""

from typing import Final

SLO: Final = "slo"
REASON: Final = "reason"

EVENTS: Final = "tailspan_slo_events_total"
GOOD_EVENTS: Final = "tailspan_slo_good_events_total"
EXCLUDED_EVENTS: Final = "tailspan_slo_excluded_events_total"
REQUESTS: Final = "tailspan_requests_total"

SEEN: Final = "slo:tailspan_seen:timestamp_seconds"
"""When the counters were there, as a value: its minimum over a window is since when."""

PLACED: Final = "slo:tailspan_group_places:increase6h"
"""Of an objective from elsewhere with `by`: the groups that have a budget of their own."""

TARGET: Final = "slo:tailspan_target:ratio"
BUDGET_LEFT: Final = "slo:tailspan_budget_left:ratio"
"""The share of the whole period's budget that is left; below 0 where it is overspent."""
PERIOD_START: Final = "slo:tailspan_period_start:timestamp_seconds"
PERIOD_END: Final = "slo:tailspan_period_end:timestamp_seconds"
"""Of a calendar period, as a value."""
PERIOD: Final = "slo:tailspan_period:info"
PERIOD_LABEL: Final = "period"
"""The start of a calendar period as a label: what is recorded in a period bears it."""
EXHAUSTED_IN: Final = "slo:tailspan_budget_exhausted_in:seconds"
"""How long the budget that is left lasts at the present burn; absent while nothing burns, and if a
calendar period ends sooner."""

ALERT_BURNING: Final = "TailspanBudgetBurn"
ALERT_HELD_BACK: Final = "TailspanBudgetBurnHeldBack"
ALERT_HUNG: Final = "TailspanEngineHung"
ALERT_BLIND: Final = "TailspanObjectiveBlind"
ALERT_ABSENT: Final = "TailspanObjectiveAbsent"
ALERT_CALENDAR: Final = "TailspanCalendarEnds"


def events(window: str) -> str:
    """All events of a window."""
    return f"slo:tailspan_events:increase{window}"


def bad_events(window: str) -> str:
    """The bad ones."""
    return f"slo:tailspan_bad_events:increase{window}"


def in_period(name: str) -> str:
    """A recorded series, with the calendar period of each sample as a label."""
    return name.replace("slo:tailspan_", "slo:tailspan_period_")


def coverage(window: str) -> str:
    """The share of a window that the counters were there for."""
    return f"slo:tailspan_coverage:ratio{window}"


def alerting_burn(window: str) -> str:
    """The burn of a pair's long window, while the pair alerts; else absent.

    Where pairs share the long window, `window` goes on with the short one and the severity.
    """
    return f"slo:tailspan_alerting_burn:ratio{window}"


def burn_rate(window: str) -> str:
    """How many times too fast the budget went. For people to see: nothing is decided by it."""
    return f"slo:tailspan_burn_rate:ratio{window}"
