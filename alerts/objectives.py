"""An objective: a promise about requests, its target and its period. Pure.

`Indicator` says how good events are told from all: by judging requests one by one
(`Goodput`), by what two Prometheus queries count (`QueryRatio`), or by a ratio that one Prometheus
query yields (`RawRatio`), of which each second is an event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Final

from alerts import durations
from alerts.burnrate import Policy
from alerts.expression import Comparison, Expression, comparisons, render

JUDGED: Final = 2
"""Counted up when `alerts.judging` comes to another verdict: what was kept is counted anew."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests are judged one by one.

    Args:
        where: which requests are meant; None for all.
        good: what is promised of each.
    """

    where: Expression | None
    good: Expression

    @property
    def definition(self) -> str:
        """What is counted, as text: equal where and only where the counts would be."""
        return f"where {render(self.where) if self.where else 'any'}; good {render(self.good)}"

    def thresholds(self) -> Iterator[tuple[str, float]]:
        """What is promised of numbers: each field with what it is compared with."""
        for leaf in comparisons(self.good):
            if isinstance(leaf, Comparison) and isinstance(leaf.value, int | float):
                yield leaf.field, float(leaf.value)

    @property
    def digest(self) -> str:
        """The definition in 16 characters: a key for stored counts."""
        whole = f"judged {JUDGED}; {self.definition}"
        return sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query that counts events, with `{{.window}}` where its range goes."""

    text: str
    per_second: bool
    """It tells a rate; times the window it is a count."""

    def over(self, window: str) -> str:
        """The count over a window, as PromQL."""
        return self.text.replace("{{.window}}", window)


@dataclass(frozen=True, slots=True)
class QueryRatio:
    """Two Prometheus queries count: all events, and the good ones or the bad ones."""

    total: Query
    part: Query
    part_is_bad: bool


@dataclass(frozen=True, slots=True)
class RawRatio:
    """A Prometheus query that yields the ratio of good or bad events over a window."""

    query: Query
    is_bad: bool


Indicator = Goodput | QueryRatio | RawRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A promise.

    Args:
        policy: which burns alert.
        labels: of every alert, beside Tailspan's own.
        annotations: of every alert, beside Tailspan's own.
        alert_when_no_data: whether absent counters page.
        file: where it is written; as `line`.
    """

    name: str
    display_name: str
    service: str
    description: str
    indicator: Indicator
    target: Fraction
    target_written: str
    period_s: int
    policy: Policy
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    alert_when_no_data: bool = True
    file: str
    line: int

    @property
    def budget(self) -> Fraction:
        """The share of events that may be bad."""
        return 1 - self.target

    @property
    def promise(self) -> str:
        """What is promised, in a sentence."""
        what = "good time" if isinstance(self.indicator, RawRatio) else "good events"
        if isinstance(self.indicator, Goodput):
            what = f"requests with {render(self.indicator.good)}"
            if self.indicator.where is not None:
                what += f" (where {render(self.indicator.where)})"
        return f"Promised: {self.target_written} {what} over {durations.render(self.period_s)}."


def counted(objectives: "tuple[Objective, ...]") -> dict[str, Goodput]:
    """By name, the objectives whose requests Tailspan counts itself."""
    return {each.name: each.indicator for each in objectives if isinstance(each.indicator, Goodput)}
