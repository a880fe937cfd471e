"""Burn rate: how fast an error budget is being spent, and whether that should wake someone.

Pure and exact: integers in, fractions out, rounded only where they are shown. The burn of a
window is Σ bad / Σ all over it, divided by the budget; the two sums are kept apart to the end.

An alert fires where both windows of a pair burn faster than the pair's factor, and no guard
holds it back:

- cold start: a window that is only partly covered counts as if the rest of it had been
  good traffic at the same rate, so its burn is multiplied by the share covered. The time to
  detect is then the same after a start as ever: factor · budget · window / bad ratio;
- low traffic: fewer bad events in the long window than the policy's minimum wake nobody;
- no data: an empty window has no burn, which is not a burn of 0.

Source: Google SRE Workbook, ch. 5, "Alerting on SLOs".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of a window."""

    bad: int
    events: int

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.events:
            raise ValueError(f"of {self.events} events {self.bad} cannot be bad")

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.bad + other.bad, self.events + other.events)

    @property
    def bad_ratio(self) -> Fraction | None:
        """The share that was bad; None where nothing happened."""
        return Fraction(self.bad, self.events) if self.events else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A long and a short window that must burn alike.

    Args:
        severity: what it makes: a page or a ticket.
        long_s: says that enough of the budget is gone.
        short_s: says that it still goes on.
        factor: how many times too fast the budget must burn in both.
    """

    severity: str
    long_s: int
    short_s: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Policy:
    """Which burns of one objective alert: the most urgent severity first, its shortest pair first.

    Made by `alerts.policy` for the objective's period and budget."""

    name: str
    source: str
    minimum_bad_events: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A window as seen: its counts, and the share of it that anyone looked at."""

    counts: Counts
    covered: Fraction

    def __post_init__(self) -> None:
        if not 0 <= self.covered <= 1:
            raise ValueError(f"a window cannot be covered to {self.covered}")


class State(StrEnum):
    """What a pair says."""

    FIRING = "firing"
    QUIET = "quiet"
    LOW_TRAFFIC = "low_traffic"
    COLD_START = "cold_start"
    NO_DATA = "no_data"


def burn(counts: Counts, budget: Fraction) -> Fraction | None:
    """How many times too fast the budget goes; None where nothing happened.

    Raises:
        ValueError: no budget to burn.
    """
    if not 0 < budget <= 1:
        raise ValueError(f"a budget must be above 0 and at most 1, not {budget}")
    ratio = counts.bad_ratio
    return None if ratio is None else ratio / budget


def judge_pair(
    long: Window, short: Window, factor: Fraction, budget: Fraction, minimum_bad_events: int
) -> State:
    """What a pair says of its two windows."""
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


def judge(windows: Mapping[int, Window], policy: Policy, budget: Fraction) -> dict[Pair, State]:
    """What every pair of a policy says.

    Args:
        windows: by length in seconds; each that the policy has.
        policy: the pairs and the minimum.
        budget: the share of events that may be bad.
    """
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


def detection_s(pair: Pair, budget: Fraction, bad_ratio: Fraction) -> Fraction | None:
    """How long a burn goes on before its pair alerts; None where it never does."""
    if bad_ratio <= pair.factor * budget:
        return None
    return pair.factor * budget * pair.long_s / bad_ratio


def budget_left(counts: Counts, budget: Fraction) -> Fraction | None:
    """The share of the period's budget that is left; below 0 where it is overspent."""
    spent = burn(counts, budget)
    return None if spent is None else 1 - spent


def exhaustion_s(left: Fraction, burning: Fraction, period_s: int) -> Fraction | None:
    """How long the budget that is left lasts at this pace; None where it is not burning.

    Assumes that traffic goes on as it was over the period.
    """
    if burning <= 0:
        return None
    return max(left, Fraction(0)) * period_s / burning
