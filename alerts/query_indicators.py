"""Objectives from elsewhere in PromQL: two queries that count, or one that yields a ratio."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts import durations
from alerts.objectives import Query, QueryRatio, RawRatio
from alerts.rulefile import literal


@dataclass(frozen=True, slots=True)
class Queries:
    """Two queries of somebody else's."""

    ratio: QueryRatio
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

    def events(self, window: str) -> str:
        """All events."""
        return _count(self.ratio.total, window)

    def bad(self, window: str) -> str:
        """Told, or what is not good. No series of bad events is none of them."""
        part = _count(self.ratio.part, window)
        if self.ratio.part_is_bad:
            return f"({part} or 0 * {self.events(window)})"
        return f"{self.events(window)} - ({part} or 0 * {self.events(window)})"


def _count(query: Query, window: str) -> str:
    """One number without labels, whatever the query's operators and labels are.

    On lines of its own, so that a comment at the query's end ends there.
    """
    whole = f"sum(\n{query.over(window)}\n)"
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
