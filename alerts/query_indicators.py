"""Objectives from elsewhere in PromQL: two queries that count, or one that yields a ratio.

Where the events are counted by group, the groups with most events in the last 6 h have a place. A
group with a place counts twice in that, so that it does not lose it to one that is about as large.
The others together are the group `other`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alerts import vocabulary
from alerts.groups import OTHER, PLACES
from alerts.objectives import Query, QueryRatio, RawRatio
from alerts.rulefile import literal, quoted
from telemetry import durations


def summed(by: Sequence[str]) -> str:
    """The aggregation that adds up events, by group where there are groups."""
    return f"sum by ({', '.join(by)}) " if by else "sum"


@dataclass(frozen=True, slots=True)
class Queries:
    """Two queries of somebody else's."""

    ratio: QueryRatio
    slo: str
    about: str = "Counted by the queries of the objective."
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    outlived_s: int = 300

    @property
    def when_absent(self) -> str:
        """The user's own metrics."""
        return (
            "First: check that what exports these metrics runs and is scraped (`up`), and that the"
            " query has not been renamed away. The total is counted by: "
            + literal(self.ratio.total.over("5m"))
        )

    @property
    def present(self) -> str:
        """The total over a short while."""
        return self.events("5m")

    @property
    def places(self) -> str | None:
        """The groups with most events; none where all is counted together."""
        if not self.ratio.by:
            return None
        events = _count(self.ratio.total, "6h", self.ratio.by)
        # A group whose own name is `other` has no place.
        none = self._other("vector(0)")
        held = f"2 * ({events}) and {self._on} {self._recorded(vocabulary.PLACED)}"
        return f"topk({PLACES}, (({held}) or ({events})) unless {self._on} {none})"

    def events(self, window: str) -> str:
        """All events."""
        return self._count(self.ratio.total, window)

    def bad(self, window: str) -> str:
        """Told, or what is not good. No series of bad events is none of them."""
        part, events, on = self._count(self.ratio.part, window), self.events(window), ""
        if self.ratio.by:
            events, on = self._recorded(vocabulary.events(window)), f"{self._on} "
        bad = f"({part} or {on}0 * {events})"
        return bad if self.ratio.part_is_bad else f"{events} - {on}{bad}"

    def _count(self, query: Query, window: str) -> str:
        """Events by group: each that has a place, and the others together."""
        whole = _count(query, window, self.ratio.by)
        if not self.ratio.by:
            return whole
        placed = f"{self._on} {self._recorded(vocabulary.PLACED)}"
        beyond = self._other(f"sum(({whole}) unless {placed})")
        return f"((({whole}) and {placed}) or {beyond})"

    @property
    def _on(self) -> str:
        return f"on ({', '.join(self.ratio.by)})"

    def _recorded(self, name: str) -> str:
        return f"{name}{{{vocabulary.SLO}={quoted(self.slo)}}}"

    def _other(self, expression: str) -> str:
        """A value under the labels of the group of all others."""
        for label in self.ratio.by:
            expression = f'label_replace({expression}, "{label}", "{OTHER}", "", "")'
        return expression


def _count(query: Query, window: str, by: Sequence[str]) -> str:
    """A number for each group, or one without labels, whatever the query's operators and labels.

    On lines of its own, so that a comment at the query's end ends there.
    """
    whole = f"{summed(by)}(\n{query.over(window)}\n)"
    return f"{whole} * {durations.parse_s(window)}" if query.per_second else whole


@dataclass(frozen=True, slots=True)
class Seconds:
    """A ratio that a query yields: the events of a window are its seconds."""

    ratio: RawRatio
    about: str = (
        "Counted by time: the query yields a ratio, so each second is one event, and a window's bad"
        " events are its ratio of failures times its seconds, however few requests it had."
    )
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    outlived_s: int = 300
    places: str | None = None

    @property
    def when_absent(self) -> str:
        """The user's own metrics."""
        return (
            "First: check that what exports these metrics runs and is scraped (`up`), and that the"
            " query yields a value: " + literal(self.ratio.query.over("5m"))
        )

    @property
    def present(self) -> str:
        """The ratio over a short while; 0 of 0 (NaN) is present too, without any event."""
        return f"count(\n{self.ratio.query.over('5m')}\n)"

    def events(self, window: str) -> str:
        """The seconds, while the ratio is a number."""
        return f"0 * ({self._known(window)}) + {durations.parse_s(window)}"

    def bad(self, window: str) -> str:
        """The ratio's part of them."""
        share = f"({self._known(window)})"
        return f"{share if self.ratio.is_bad else f'(1 - {share})'} * {durations.parse_s(window)}"

    def _known(self, window: str) -> str:
        """The ratio from 0 to 1; the comparison leaves NaN out."""
        return f"clamp(sum(\n{self.ratio.query.over(window)}\n), 0, 1) >= 0"
