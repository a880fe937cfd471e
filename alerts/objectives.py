"""An objective: a promise about requests, its target and its period. Pure.

`Indicator` says how good events are told from all: by judging requests one by one
(`Goodput`), by what two Prometheus queries count (`QueryRatio`), or by a ratio that one Prometheus
query yields (`RawRatio`), of which each second is an event. With `slices`, each slice of time is
one event instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import Final

from alerts import groups
from alerts.burnrate import Policy
from alerts.expression import Comparison, Expression, comparisons, render
from alerts.groups import Group
from alerts.periods import Calendar, Span
from alerts.slices import Slices
from telemetry import durations

JUDGED: Final = 2
"""Counted up when `alerts.judging` comes to another verdict: what was kept is counted anew."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests are judged one by one.

    Args:
        where: which requests are meant; None for all.
        good: what is promised of each.
        by: fields whose values make groups with a budget each.
        reserved: groups that always have a place (`alerts.places`).
        part: which of these groups this is; None for the requests of all.
        slices: each slice of time is one event; None if each request is.
    """

    where: Expression | None
    good: Expression
    by: tuple[str, ...] = ()
    reserved: tuple[Group, ...] = ()
    part: "Part | None" = None
    slices: Slices | None = None

    @property
    def definition(self) -> str:
        """What is counted, as text: equal where and only where the counts of requests would be."""
        by = f"; by {', '.join(self.by)}" if self.by else ""
        return f"where {render(self.where) if self.where else 'any'}; good {render(self.good)}{by}"

    def of_group(self, group: Group, placed: tuple[Group, ...]) -> "Goodput":
        """The requests of one group.

        Args:
            group: one that has a place, or `groups.other(by)`.
            placed: the groups that have a place.
        """
        where = groups.narrowed(self.where, self.by, placed, group)
        return replace(self, where=where, part=Part(self, placed, group))

    @property
    def group_key(self) -> str:
        """Its group as text; empty for the requests of all."""
        return groups.key(self.part.group) if self.part else ""

    def thresholds(self) -> Iterator[tuple[str, float]]:
        """What is promised of numbers: each field with what it is compared with."""
        for leaf in comparisons(self.good):
            if isinstance(leaf, Comparison) and isinstance(leaf.value, int | float):
                yield leaf.field, float(leaf.value)

    @property
    def digest(self) -> str:
        """A key for stored counts: the definition in 16 characters, and the group."""
        if self.part:
            return self.part.whole.digest + self.group_key
        whole = f"judged {JUDGED}; {self.definition}"
        return sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Part:
    """One group of requests, and the groups that are counted beside it."""

    whole: Goodput
    groups: tuple[Group, ...]
    group: Group

    @property
    def family(self) -> str:
        """A key for counts of all these groups together."""
        every = "".join(map(groups.key, self.groups))
        return self.whole.digest + sha256(every.encode()).hexdigest()[:16]


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
    by: tuple[str, ...] = ()
    """Labels whose values make groups with a budget each."""
    slices: Slices | None = None


@dataclass(frozen=True, slots=True)
class RawRatio:
    """A Prometheus query that yields the ratio of good or bad events over a window."""

    query: Query
    is_bad: bool
    slices: Slices | None = None


Indicator = Goodput | QueryRatio | RawRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A promise.

    Args:
        period_s: the length of the period; of a calendar period the nominal one.
        calendar: its calendar; None if it rolls.
        policy: which burns alert.
        labels: of every alert, beside Tailspan's own.
        annotations: of every alert, beside Tailspan's own.
        alert_when_no_data: whether absent counters page.
        file: where it is written; as `line`.
    """

    name: str
    """That of a group's objective ends in the group: `chat{tenant="acme"}`."""
    display_name: str
    service: str
    description: str
    indicator: Indicator
    target: Fraction
    target_written: str
    period_s: int
    calendar: Calendar | None = None
    policy: Policy
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    alert_when_no_data: bool = True
    file: str
    line: int

    @property
    def base(self) -> str:
        """The name without a group: that of the document."""
        return groups.base(self.name)

    @property
    def by(self) -> tuple[str, ...]:
        """Fields or labels whose values make groups with a budget each."""
        return () if isinstance(self.indicator, RawRatio) else self.indicator.by

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """The fields and values of its group; none for an objective on all requests."""
        if not isinstance(self.indicator, Goodput) or self.indicator.part is None:
            return ()
        return tuple(zip(self.indicator.by, self.indicator.part.group, strict=True))

    def of_group(self, group: Group, placed: tuple[Group, ...]) -> "Objective":
        """The objective of one group of requests; arguments as of `Goodput.of_group`."""
        assert isinstance(self.indicator, Goodput)
        indicator = self.indicator.of_group(group, placed)
        return replace(
            self,
            name=groups.name(self.name, indicator.by, group),
            display_name=groups.name(f"{self.display_name} ", indicator.by, group),
            indicator=indicator,
        )

    @property
    def budget(self) -> Fraction:
        """The share of events that may be bad."""
        return 1 - self.target

    @property
    def period_text(self) -> str:
        """The period for people: `30d`, `a calendar month (UTC)`."""
        return self.calendar.text if self.calendar else durations.render(self.period_s)

    def period_at(self, at_s: int) -> Span:
        """The period as of an instant: that which ends then, or the calendar's that holds it."""
        if self.calendar:
            return self.calendar.at(at_s)
        return Span(at_s - self.period_s, at_s)

    @property
    def counted_in(self) -> str:
        """What an event is, in the plural."""
        if self.indicator.slices:
            return f"slices of {self.indicator.slices.length}"
        match self.indicator:
            case Goodput():
                return "requests"
            case QueryRatio():
                return "events"
            case RawRatio():
                return "s"

    @property
    def promise(self) -> str:
        """What is promised, in a sentence."""
        what = "good time" if isinstance(self.indicator, RawRatio) else "good events"
        if isinstance(self.indicator, Goodput):
            whole = self.indicator.part.whole if self.indicator.part else self.indicator
            what = f"requests with {render(whole.good)}"
            if whole.where is not None:
                what += f" (where {render(whole.where)})"
        if slices := self.indicator.slices:
            what = f"slices of {slices.length} with {slices.target_written} {what} each"
        if self.by:
            what += f" for each {', '.join(self.by)}"
        return f"Promised: {self.target_written} {what} over {self.period_text}."


def counted(objectives: "tuple[Objective, ...]") -> dict[str, Goodput]:
    """By name, the objectives whose requests Tailspan counts itself."""
    return {each.name: each.indicator for each in objectives if isinstance(each.indicator, Goodput)}
