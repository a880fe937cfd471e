"""The types of a panel: queries, description, range of values. Independent of Grafana."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class Unit(StrEnum):
    """Units under Grafana's names."""

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
    """A burn rate: a multiple of the sustainable rate."""
    NUMBER = "short"
    CPUS = "CPUs"
    BYTES_PER_S = "binBps"
    WATTS = "watt"
    JOULES = "joule"
    HERTZ = "rothz"
    USD = "currencyUSD"

    @property
    def grafana(self) -> str:
        """Grafana's id of the unit. The prefix `suffix:` creates a unit from a word."""
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
"""The highest valid value of each unit. The lowest is 0."""


class Kind(StrEnum):
    """The kind of drawing."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"
    HEATMAP = "heatmap"


class Query(NamedTuple):
    """A Prometheus query. `legend` names each series by its labels, as in Grafana.

    A `native` query reads a native histogram if there are no classic buckets. Otherwise it has no
    result.
    """

    expr: str
    legend: str
    exemplars: bool = False
    native: bool = False


class Threshold(NamedTuple):
    """The panel has this colour from `value` upwards."""

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
    """Colours by legend, for series with fixed colours."""
    latency: str = "ttft"
    """The latency to select in the linked explorer page."""
    page: str = "requests"
    """The linked explorer page."""
    most: float | None = None
    """The top of the scale, if fixed."""
    signed: bool = False
    """Whether values may be negative. Otherwise the scale begins at 0."""


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
    """Names from `variables.py`, in order."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels."""
        return tuple(panel for row in self.rows for panel in row.panels)
