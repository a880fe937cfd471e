"""Objectives: which requests count, when a request is good, the target and the period. Pure.

An event is a request (`Goodput`), a probe (`GoodProbes`), or an event that Prometheus queries count
(`QueryRatio`). It can also be a second of a query that returns a ratio (`RawRatio`). With `slices`,
each time slice is one event.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import ClassVar, Final, Self

from alerts import groups
from alerts.burnrate import Policy
from alerts.expression import Expression, FieldComparison, comparisons, render
from alerts.groups import Group
from alerts.periods import Calendar, PeriodBounds
from alerts.slices import Slices
from store.alerting.slo_counts import PROBE_DEFINITIONS
from telemetry import durations

JUDGED: Final = 2
"""Increase this when the rules in `alerts.evaluation.request_verdicts` change, so that stored
counts from earlier rules are not used."""


@dataclass(frozen=True, slots=True)
class GoodEvents:
    """An indicator that Tailspan counts itself.

    Args:
        where: selects the events; None selects all.
        by: fields whose values define groups.
        reserved: groups that always have a slot.
        part: the group that is counted; None counts all groups together.
        slices: None if each request or probe is an event.
    """

    rows: ClassVar[str]
    """The plural noun for what is counted, such as "requests"."""
    counted_as: ClassVar[str] = ""
    """The prefix of the key of stored counts."""

    where: Expression | None
    good: Expression
    by: tuple[str, ...] = ()
    reserved: tuple[Group, ...] = ()
    part: "EventGroup | None" = None
    slices: Slices | None = None

    @property
    def definition(self) -> str:
        """The indicator as text. Two indicators with the same text have the same counts."""
        by = f"; by {', '.join(self.by)}" if self.by else ""
        of = "" if isinstance(self, Goodput) else f"{self.rows}; "
        return (
            f"{of}where {render(self.where) if self.where else 'any'}; good {render(self.good)}{by}"
        )

    def of_group(self, group: Group, separate: tuple[Group, ...]) -> Self:
        """The indicator of one group: a group that is counted separately (it has a slot), or
        `groups.other(by)`."""
        where = groups.narrowed(self.where, self.by, separate, group)
        return replace(self, where=where, part=EventGroup(self, separate, group))

    @property
    def group_key(self) -> str:
        """The group as text; empty for all groups together."""
        return groups.key(self.part.group) if self.part else ""

    def thresholds(self) -> Iterator[tuple[str, float]]:
        """Yield each numeric field of `good` with its threshold."""
        for leaf in comparisons(self.good):
            if isinstance(leaf, FieldComparison) and isinstance(leaf.value, int | float):
                yield leaf.field, float(leaf.value)

    @property
    def digest(self) -> str:
        """The key of stored counts: the kind of event, a hash of the definition, and the group."""
        if self.part:
            return self.part.whole.digest + self.group_key
        whole = f"judged {JUDGED}; {self.definition}"
        return self.counted_as + sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Goodput(GoodEvents):
    """An indicator whose events are requests."""

    rows: ClassVar[str] = "requests"


@dataclass(frozen=True, slots=True)
class GoodProbes(GoodEvents):
    """An indicator whose events are probes (docs/probe.md)."""

    rows: ClassVar[str] = "probes"
    counted_as: ClassVar[str] = PROBE_DEFINITIONS


@dataclass(frozen=True, slots=True)
class EventGroup:
    """The events of one group of an objective."""

    whole: GoodEvents
    """The events of all groups."""
    groups: tuple[Group, ...]
    """The groups that are counted separately."""
    group: Group

    @property
    def family(self) -> str:
        """A key that all groups of an objective share. One call counts the requests of all these
        groups."""
        every = "".join(map(groups.key, self.groups))
        return self.whole.digest + sha256(every.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class EventQuery:
    """A query that counts events. `{{.window}}` stands for the window."""

    text: str
    per_second: bool
    """True if the query returns a rate, which is multiplied by the window's seconds."""

    def over(self, window: str) -> str:
        """The query for a window."""
        return self.text.replace("{{.window}}", window)


@dataclass(frozen=True, slots=True)
class QueryRatio:
    """Two Prometheus queries: one for all events, and one for either the good or the bad events."""

    total: EventQuery
    part: EventQuery
    part_is_bad: bool
    by: tuple[str, ...] = ()
    """Labels whose values define groups."""
    slices: Slices | None = None


@dataclass(frozen=True, slots=True)
class RawRatio:
    """A Prometheus query that returns the ratio of good or bad events over a window."""

    query: EventQuery
    is_bad: bool
    slices: Slices | None = None


Indicator = Goodput | GoodProbes | QueryRatio | RawRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """An SLO with one target.

    Args:
        period_s: the length of the period; nominal for a calendar period.
        calendar: None for a rolling period.
        labels, annotations: added to every alert.
        alert_when_no_data: whether a paging alert fires if the counters are missing.
        file: the file that defines the objective at line `line`.
    """

    name: str
    """The name, with the group if there is one: `chat{tenant="acme"}`."""
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
        """The name in the objective's document, without the group."""
        return groups.base(self.name)

    @property
    def by(self) -> tuple[str, ...]:
        """Fields or labels whose values define groups."""
        return () if isinstance(self.indicator, RawRatio) else self.indicator.by

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """Fields and values of the group. They are empty without a group."""
        if not isinstance(self.indicator, GoodEvents) or self.indicator.part is None:
            return ()
        return tuple(zip(self.indicator.by, self.indicator.part.group, strict=True))

    def of_group(self, group: Group, separate: tuple[Group, ...]) -> "Objective":
        """The objective of one group. See `GoodEvents.of_group`."""
        assert isinstance(self.indicator, GoodEvents)
        indicator = self.indicator.of_group(group, separate)
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
        """The period as display text: `30d`, `a calendar month (UTC)`."""
        return self.calendar.text if self.calendar else durations.render(self.period_s)

    def period_at(self, at_s: int) -> PeriodBounds:
        """Return the rolling period that ends at an instant, or the calendar period that contains
        the instant."""
        if self.calendar:
            return self.calendar.at(at_s)
        return PeriodBounds(at_s - self.period_s, at_s)

    @property
    def rows(self) -> str:
        """The plural noun for what Tailspan counts: "requests" or "probes"."""
        return self.indicator.rows if isinstance(self.indicator, GoodEvents) else "requests"

    @property
    def counted_in(self) -> str:
        """The plural noun for an event, such as "requests"."""
        if self.indicator.slices:
            return f"slices of {self.indicator.slices.length}"
        match self.indicator:
            case GoodEvents():
                return self.indicator.rows
            case QueryRatio():
                return "events"
            case RawRatio():
                return "s"

    @property
    def statement(self) -> str:
        """The objective in one sentence."""
        what = "time good" if isinstance(self.indicator, RawRatio) else "events good"
        if isinstance(self.indicator, GoodEvents):
            whole = self.indicator.part.whole if self.indicator.part else self.indicator
            what = f"{whole.rows} with {render(whole.good)}"
            if whole.where is not None:
                what += f" (where {render(whole.where)})"
        if slices := self.indicator.slices:
            what = f"{slices.length} slices with {slices.target_written} of {what}"
        if self.by:
            what += f" for each {', '.join(self.by)}"
        return f"Objective: {self.target_written} of {what} over {self.period_text}."


def counted(objectives: "tuple[Objective, ...]") -> dict[str, GoodEvents]:
    """The indicators that Tailspan counts itself, by the objective's name."""
    return {
        each.name: each.indicator for each in objectives if isinstance(each.indicator, GoodEvents)
    }
