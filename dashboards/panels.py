"""The types that define a panel, independent of Grafana."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class GrafanaUnit(StrEnum):
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
    """The unit of burn rates. At a burn rate of 1, the error budget lasts exactly for the
    objective's period."""
    NUMBER = "short"
    CPUS = "CPUs"
    BYTES_PER_S = "binBps"
    WATTS = "watt"
    JOULES = "joule"
    HERTZ = "rothz"
    USD = "currencyUSD"

    @property
    def grafana(self) -> str:
        """Grafana's id of the unit. The prefix `suffix:` defines a custom unit."""
        words = {
            GrafanaUnit.TOKENS_PER_S,
            GrafanaUnit.REQUESTS,
            GrafanaUnit.TOKENS,
            GrafanaUnit.TIMES,
            GrafanaUnit.CPUS,
        }
        return f"suffix: {self}" if self in words else str(self)


HIGHEST: Final[Mapping[GrafanaUnit, float]] = {
    GrafanaUnit.SECONDS: 3_600,
    GrafanaUnit.DAYS: 1e9,
    GrafanaUnit.SHARE: 1 + 1e-9,
    GrafanaUnit.REQUESTS_PER_S: 1e6,
    GrafanaUnit.TOKENS_PER_S: 1e8,
    GrafanaUnit.REQUESTS: 1e6,
    GrafanaUnit.TOKENS: 1e7,
    GrafanaUnit.BYTES: 1e12,
    GrafanaUnit.PER_S: 1e7,
    GrafanaUnit.TIMES: 1e4,
    GrafanaUnit.NUMBER: 1e9,
    GrafanaUnit.CPUS: 1e4,
    GrafanaUnit.BYTES_PER_S: 1e14,
    GrafanaUnit.WATTS: 1e6,
    GrafanaUnit.JOULES: 1e9,
    GrafanaUnit.HERTZ: 1e11,
    GrafanaUnit.USD: 1e7,
}
"""The highest plausible value of each unit, for checks of the queries. The lowest plausible value
is 0."""


class PanelKind(StrEnum):
    """The type of visualization."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"
    HEATMAP = "heatmap"


class PanelQuery(NamedTuple):
    """A Prometheus query. `legend` is Grafana's template for the name of each series.

    A `native` query has no result if Prometheus stores the histogram as classic buckets.
    """

    expr: str
    legend: str
    exemplars: bool = False
    native: bool = False


class ColourThreshold(NamedTuple):
    """A colour of the panel for values of at least `value`."""

    value: float
    colour: str


GOOD: Final = "green"
WARNING: Final = "orange"
BAD: Final = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. A `width` of 24 is the whole page."""

    title: str
    description: str
    unit: GrafanaUnit
    queries: tuple[PanelQuery, ...]
    kind: PanelKind = PanelKind.LINES
    width: int = 12
    thresholds: tuple[ColourThreshold, ...] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    latency: str = "ttft"
    """The latency that the explorer shows when the reader follows the panel's link."""
    page: str = "requests"
    most: float | None = None
    """The top of the panel's scale, or None to fit the scale to the data."""
    signed: bool = False
    """Whether the scale may begin below 0."""
    decimals: int = 1
    """The decimals of a share in percent. Grafana rounds 99.96 % with one decimal to 100.0 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading with the panels below it."""

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
    """The dashboard's variables, in the order of display. `variables.py` defines them."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels."""
        return tuple(panel for row in self.rows for panel in row.panels)
