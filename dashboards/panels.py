"""What a panel is: what it asks, what it means, and what its values can be. Knows no Grafana."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class Unit(StrEnum):
    """Units under the names that Grafana has for them."""

    SECONDS = "s"
    DAYS = "d"
    SHARE = "percentunit"
    REQUESTS_PER_S = "reqps"
    TOKENS_PER_S = "tokens/s"
    REQUESTS = "requests"
    TOKENS = "tokens"
    BYTES = "bytes"
    PER_S = "cps"
    TIMES = "x"
    """Times as fast as can be afforded: a burn rate."""
    NUMBER = "short"
    CPUS = "CPUs"
    BYTES_PER_S = "binBps"
    WATTS = "watt"
    JOULES = "joule"
    HERTZ = "rothz"
    USD = "currencyUSD"

    @property
    def grafana(self) -> str:
        """The id of the unit in Grafana; `suffix:` makes one of a word."""
        words = {Unit.TOKENS_PER_S, Unit.REQUESTS, Unit.TOKENS, Unit.TIMES, Unit.CPUS}
        return f"suffix: {self}" if self in words else str(self)


HIGHEST: Final[Mapping[Unit, float]] = {
    Unit.SECONDS: 3_600,
    Unit.DAYS: 1e9,
    Unit.SHARE: 1 + 1e-9,
    Unit.REQUESTS_PER_S: 1e6,
    Unit.TOKENS_PER_S: 1e8,
    Unit.REQUESTS: 1e6,
    Unit.TOKENS: 1e7,
    Unit.BYTES: 1e12,
    Unit.PER_S: 1e7,
    Unit.TIMES: 1e4,
    Unit.NUMBER: 1e9,
    Unit.CPUS: 1e4,
    Unit.BYTES_PER_S: 1e14,
    Unit.WATTS: 1e6,
    Unit.JOULES: 1e9,
    Unit.HERTZ: 1e11,
    Unit.USD: 1e7,
}
"""Beyond it a value is no value of that unit; none is ever below 0."""


class Kind(StrEnum):
    """How it is drawn."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"
    HEATMAP = "heatmap"


class Query(NamedTuple):
    """A question to Prometheus. `legend` names each series by its labels, as Grafana does. One
    that is `native` asks for a native histogram where there are no classic buckets of it, and has
    no answer elsewhere."""

    expr: str
    legend: str
    exemplars: bool = False
    native: bool = False


class Threshold(NamedTuple):
    """From `value` on the panel takes this colour."""

    value: float
    colour: str


GOOD: Final = "green"
DOUBTFUL: Final = "orange"
BAD: Final = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `width` is in 24ths of the page."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    width: int = 12
    thresholds: tuple[Threshold, ...] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    """By legend, where series have colours of their own."""
    latency: str = "ttft"
    """Which latency the explorer shows that the panel leads to."""
    page: str = "requests"
    """Which page of the explorer it leads to."""
    most: float | None = None
    """The top of the scale, where there is one."""
    signed: bool = False
    """Whether its values may be below zero; of others the scale begins there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[str, ...]
    """By name, of `variables.py`, in the order of the page."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them."""
        return tuple(panel for row in self.rows for panel in row.panels)
