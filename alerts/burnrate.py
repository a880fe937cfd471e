"""Burn rates: how fast an error budget is spent, and whether that triggers an alert.

Pure, with exact fractions. The burn rate of a window is Σ bad / Σ all, divided by the budget. An
alert fires if the burn rates of both windows of a pair exceed its factor, except for:

- cold start: the burn rate is multiplied by the counted share of the window, as if the time before
  counting began had been good;
- low traffic: the long window has fewer bad events than the policy's minimum;
- no data: a window without events has no burn rate.

Source: Google SRE Workbook, ch. 5, "Alerting on SLOs".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Counts of bad and of all events in a window."""

    bad: int
    events: int

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.events:
            raise ValueError(f"{self.bad} bad of {self.events} events; allowed: 0 to all")

    def __add__(self, other: "EventCounts") -> "EventCounts":
        return EventCounts(self.bad + other.bad, self.events + other.events)

    @property
    def bad_ratio(self) -> Fraction | None:
        """None if there are no events."""
        return Fraction(self.bad, self.events) if self.events else None


@dataclass(frozen=True, slots=True)
class WindowPair:
    """An alert fires only if the burn rate exceeds `factor` over both windows.

    Args:
        severity: page or ticket.
        long_s: shows that enough of the budget was spent.
        short_s: shows that the budget is still being spent.
    """

    severity: str
    long_s: int
    short_s: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Policy:
    """The window pairs of one objective, sorted by severity (urgent first) and length."""

    name: str
    source: str
    minimum_bad_events: int
    pairs: tuple[WindowPair, ...]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Counts, and the share of the window in which events were counted."""

    counts: EventCounts
    covered: Fraction

    def __post_init__(self) -> None:
        if not 0 <= self.covered <= 1:
            raise ValueError(f"covered {self.covered}; allowed: 0 to 1")


class State(StrEnum):
    """Whether a pair of burn-rate windows fires, or why it does not."""

    FIRING = "firing"
    QUIET = "quiet"
    LOW_TRAFFIC = "low_traffic"
    COLD_START = "cold_start"
    NO_DATA = "no_data"


def burn(counts: EventCounts, budget: Fraction) -> Fraction | None:
    """How many times too fast the budget is spent; None without events.

    Raises:
        ValueError: the budget is 0 or less, or more than 1.
    """
    if not 0 < budget <= 1:
        raise ValueError(f"a budget must be above 0 and at most 1, not {budget}")
    ratio = counts.bad_ratio
    return None if ratio is None else ratio / budget


def judge_pair(
    long: WindowCounts,
    short: WindowCounts,
    factor: Fraction,
    budget: Fraction,
    minimum_bad_events: int,
) -> State:
    """Fire, or the reason not to."""
    if long.counts.events and short.counts.events and not (long.counts.bad and short.counts.bad):
        return State.QUIET  # the usual case, without the division of fractions
    long_burn, short_burn = burn(long.counts, budget), burn(short.counts, budget)
    if long_burn is None or short_burn is None:
        return State.NO_DATA
    if long_burn <= factor or short_burn <= factor:
        return State.QUIET
    if long.counts.bad < minimum_bad_events:
        return State.LOW_TRAFFIC
    if long_burn * long.covered <= factor or short_burn * short.covered <= factor:
        return State.COLD_START
    return State.FIRING


def judge(
    windows: Mapping[int, WindowCounts], policy: Policy, budget: Fraction
) -> dict[WindowPair, State]:
    """The state of every window pair. `windows` has counts by length in seconds."""
    return {
        pair: judge_pair(
            windows[pair.long_s],
            windows[pair.short_s],
            pair.factor,
            budget,
            policy.minimum_bad_events,
        )
        for pair in policy.pairs
    }


def detection_s(pair: WindowPair, budget: Fraction, bad_ratio: Fraction) -> Fraction | None:
    """Seconds from the start of a burn to its alert; None if it never alerts."""
    if bad_ratio <= pair.factor * budget:
        return None
    return pair.factor * budget * pair.long_s / bad_ratio


def budget_left(counts: EventCounts, budget: Fraction) -> Fraction | None:
    """A share; negative if overspent."""
    spent = burn(counts, budget)
    return None if spent is None else 1 - spent


def exhaustion_s(left: Fraction, burning: Fraction, period_s: int) -> Fraction | None:
    """How long the budget lasts at this burn rate and the period's request rate; None at rate 0."""
    if burning <= 0:
        return None
    return max(left, Fraction(0)) * period_s / burning
