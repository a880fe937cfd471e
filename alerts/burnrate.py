"""Burn rates: how fast an error budget is spent, and whether that triggers an alert.

This module is pure and exact. The burn rate of a window is (bad events / all events) / budget. An
alert fires if the burn rates of both windows of a pair exceed the pair's factor. Three guards can
suppress an alert:

- cold start: the time before counting began counts as good;
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
    """Counts of good and bad events in a window."""

    bad: int
    events: int

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.events:
            raise ValueError(f"{self.bad} bad of {self.events} events; allowed: 0 to all")

    def __add__(self, other: "EventCounts") -> "EventCounts":
        return EventCounts(self.bad + other.bad, self.events + other.events)

    @property
    def bad_ratio(self) -> Fraction | None:
        """The share of bad events, or None if there are no events."""
        return Fraction(self.bad, self.events) if self.events else None


@dataclass(frozen=True, slots=True)
class WindowPair:
    """A long and a short window. An alert fires only if the burn rates of both exceed `factor`.

    Args:
        severity: page or ticket.
        long_s: the window shows that enough of the budget was spent.
        short_s: the window shows that the budget is still being spent.
    """

    severity: str
    long_s: int
    short_s: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Policy:
    """The window pairs of one objective. The most urgent severity comes first, then the shortest
    pair."""

    name: str
    source: str
    minimum_bad_events: int
    pairs: tuple[WindowPair, ...]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The counts of a window, and the share of the window in which events were counted."""

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
    """The burn rate: how many times faster than allowed the budget is spent. None without events.

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
    """Return `FIRING`, or the state that explains why the pair of windows does not fire."""
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
    """The state of every window pair. `windows` maps a window's length in seconds to its counts."""
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
    """Return the seconds from the start of a burn to its alert, or None if no alert fires."""
    if bad_ratio <= pair.factor * budget:
        return None
    return pair.factor * budget * pair.long_s / bad_ratio


def budget_left(counts: EventCounts, budget: Fraction) -> Fraction | None:
    """The share of the period's budget that is left. It is negative if overspent."""
    spent = burn(counts, budget)
    return None if spent is None else 1 - spent


def exhaustion_s(left: Fraction, burning: Fraction, period_s: int) -> Fraction | None:
    """The seconds that the budget lasts at this burn rate, or None if the rate is 0."""
    if burning <= 0:
        return None
    return max(left, Fraction(0)) * period_s / burning
