"""Indicators from a user's Prometheus queries.

With `by`, the `SLOTS` groups with the most events in the last 6 h are counted separately. All
other groups are counted as `other`. When the groups are ranked, the events of a group that already
has a slot count double, so that a group of similar size does not replace it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alerts import vocabulary
from alerts.groups import OTHER, SLOTS
from alerts.objectives import EventQuery, QueryRatio, RawRatio
from alerts.prometheus.rulefile import literal, quoted
from telemetry import durations


def summed(by: Sequence[str]) -> str:
    """The aggregation that sums per group, or in total if `by` is empty."""
    return f"sum by ({', '.join(by)}) " if by else "sum"


@dataclass(frozen=True, slots=True)
class Queries:
    """The two queries of a `QueryRatio`."""

    ratio: QueryRatio
    slo: str
    about: str = "The objective's own Prometheus queries count the events."
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    staleness_s: int = 300

    @property
    def when_absent(self) -> str:
        """The sentence that states what to check first if the user's metrics are missing."""
        return (
            "First: check that the exporter of these metrics runs, that Prometheus scrapes it"
            " (`up`), and that the metrics have not been renamed. The query of the total is:  "
            + literal(self.ratio.total.over("5m"))
        )

    @property
    def present(self) -> str:
        """An expression for the number of events in the last 5 min."""
        return self.events("5m")

    @property
    def slots(self) -> str | None:
        """An expression for the groups with the most events, or None if `by` is empty."""
        if not self.ratio.by:
            return None
        events = _count(self.ratio.total, "6h", self.ratio.by)
        # A group that is named `other` gets no slot.
        none = self._as_other_group("vector(0)")
        kept = f"2 * ({events}) and {self._on} {self._recorded(vocabulary.SLOTS)}"
        return f"topk({SLOTS}, (({kept}) or ({events})) unless {self._on} {none})"

    def events(self, window: str) -> str:
        """The expression that counts all events."""
        return self._count(self.ratio.total, window)

    def bad(self, window: str) -> str:
        """Expression for the bad events. A query without series counts 0 events."""
        part, events, on = self._count(self.ratio.part, window), self.events(window), ""
        if self.ratio.by:
            events, on = self._recorded(vocabulary.events(window)), f"{self._on} "
        bad = f"({part} or {on}0 * {events})"
        return bad if self.ratio.part_is_bad else f"{events} - {on}{bad}"

    def _count(self, query: EventQuery, window: str) -> str:
        """Number of events per group with a slot, and for the group `other`."""
        whole = _count(query, window, self.ratio.by)
        if not self.ratio.by:
            return whole
        separate = f"{self._on} {self._recorded(vocabulary.SLOTS)}"
        beyond = self._as_other_group(f"sum(({whole}) unless {separate})")
        return f"((({whole}) and {separate}) or {beyond})"

    @property
    def _on(self) -> str:
        return f"on ({', '.join(self.ratio.by)})"

    def _recorded(self, name: str) -> str:
        return f"{name}{{{vocabulary.SLO}={quoted(self.slo)}}}"

    def _as_other_group(self, expression: str) -> str:
        for label in self.ratio.by:
            expression = f'label_replace({expression}, "{label}", "{OTHER}", "", "")'
        return expression


def _count(query: EventQuery, window: str, by: Sequence[str]) -> str:
    """The count of a query's events. The query is on lines of its own, because it may end with a
    comment."""
    whole = f"{summed(by)}(\n{query.over(window)}\n)"
    return f"{whole} * {durations.parse_s(window)}" if query.per_second else whole


@dataclass(frozen=True, slots=True)
class Seconds:
    """A query that returns a ratio. Each second of a window is one event."""

    ratio: RawRatio
    about: str = (
        "The query returns a ratio, so each second is one event. The number of bad events of a"
        " window is its failure ratio times its length in seconds, regardless of the number of"
        " requests."
    )
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    staleness_s: int = 300
    slots: str | None = None

    @property
    def when_absent(self) -> str:
        """The sentence that states what to check first if the user's metrics are missing."""
        return (
            "First: check that the exporter of these metrics runs, that Prometheus scrapes it"
            " (`up`), and that this query returns a value:  " + literal(self.ratio.query.over("5m"))
        )

    @property
    def present(self) -> str:
        """An expression that has a result while the ratio over 5 min exists, even if it is NaN."""
        return f"count(\n{self.ratio.query.over('5m')}\n)"

    def events(self, window: str) -> str:
        """The window's seconds. There is no value if the ratio is NaN."""
        return f"0 * ({self._clamped_ratio(window)}) + {durations.parse_s(window)}"

    def bad(self, window: str) -> str:
        """The failure ratio times the window's length in seconds."""
        share = f"({self._clamped_ratio(window)})"
        return f"{share if self.ratio.is_bad else f'(1 - {share})'} * {durations.parse_s(window)}"

    def _clamped_ratio(self, window: str) -> str:
        """The ratio, limited to values from 0 to 1. The comparison removes NaN."""
        return f"clamp(sum(\n{self.ratio.query.over(window)}\n), 0, 1) >= 0"
