"""The reader's selection: range, filters and each page's settings. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from analysis.budget.budget_file import PRESETS
from analysis.over_time.time_bins import SECOND_NS
from analysis.range_costs import DIMENSIONS
from telemetry.durations import parse_ns
from telemetry.window import Window
from ui.frame.pages import FIRST
from ui.kit.replica_measures import FIRST_MEASURE
from ui.kit.request_key import RequestKey

RANGES_S: Final = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400}
DEFAULT_RANGE: Final = "15m"
LATENCIES: Final = {
    "ttft": "ttft_s",
    "itl_max": "itl_max_s",
    "tpot": "tpot_s",
    "e2e": "e2e_s",
    "queue": "queue_s",
    "first_content": "first_content_s",
}
CONTENT: Final = "first_content"
"""The time to first content. Only some pages show it, because rollups and replays do not contain
it."""
LABELS: Final = ("model", "replica", "tenant", "route", "outcome")
STEPS: Final = ("day", "hour")
DECIDERS: Final = ("slo", "size")
EARLIER: Final = {"24h": "vs. one day earlier", "7d": "vs. one week earlier"}
"""Durations by which the baseline can be earlier than the range. An address may contain any other
duration."""
QUANTILES: Final = ("p50", "p95", "p99")
DEFAULT_QUANTILE: Final = "p95"
NO_BUDGET: Final = "none"
OWN_BUDGET: Final = "file"
BUDGETS: Final = (NO_BUDGET, *PRESETS, OWN_BUDGET)
PAYERS: Final = DIMENSIONS


@dataclass(frozen=True, slots=True)
class View:
    """The reader's selection.

    A live range has only `last`. A paused range also has `to_unix_ns`, the instant at which it
    ends. A custom range has `from_unix_ns` and `to_unix_ns`.
    """

    last: str | None = DEFAULT_RANGE
    from_unix_ns: int | None = None
    to_unix_ns: int | None = None
    latency: str = "ttft_s"
    equals: Mapping[str, str] = field(default_factory=dict)
    request: RequestKey | str | None = None
    """The open request, or the id that the reader typed on the Request page."""
    page: str = FIRST
    baseline: Window | str | None = None
    """A range, a duration such as 24h, or None for the previous range."""
    incident: str | None = None
    decide: str = DECIDERS[0]
    by: str = STEPS[0]
    measure: str = FIRST_MEASURE
    per: str = PAYERS[0]
    change: str = ""
    """The changes, separated by commas, in the form that `replay.edits` parses."""
    region: str = ""
    endpoint: str = ""
    quantile: str = DEFAULT_QUANTILE
    split: str = ""
    """The label whose values `before` and `after` are compared. If the label is empty, the range is
    compared with its baseline."""
    before: str = ""
    after: str = ""
    budget: str = NO_BUDGET
    sweep: str = ""
    """The sweep, in the form that `what_if_search.sweep_of` parses."""

    @property
    def live(self) -> bool:
        """Whether the range ends at the current time."""
        return self.to_unix_ns is None

    @property
    def names_incident(self) -> bool:
        """Whether the address names an incident whose range has not been read yet."""
        return self.incident is not None and self.last is None and self.to_unix_ns is None

    @property
    def metric(self) -> str:
        """The latency's name in addresses and commands, such as `ttft`."""
        return next(name for name, column in LATENCIES.items() if column == self.latency)

    def window(self, now_unix_ns: int) -> Window:
        """The half-open range to show."""
        to = now_unix_ns if self.to_unix_ns is None else self.to_unix_ns
        if self.last is not None:
            return Window(max(0, to - RANGES_S[self.last] * SECOND_NS), to)
        return Window(to if self.from_unix_ns is None else self.from_unix_ns, to)

    def chosen_baseline(self, window: Window) -> Window | None:
        """The reader's baseline, or None if there is none.

        If the reader's baseline overlaps the range or begins before 1970, the result is None.
        """
        if not isinstance(self.baseline, str):
            return self.baseline
        ago_ns = parse_ns(self.baseline)
        length_ns = window.to_unix_ns - window.from_unix_ns
        if not length_ns <= ago_ns <= window.from_unix_ns:
            return None
        return Window(window.from_unix_ns - ago_ns, window.to_unix_ns - ago_ns)

    def baseline_of(self, window: Window) -> Window:
        """The chosen baseline, or the previous range of the same length."""
        if (chosen := self.chosen_baseline(window)) is not None:
            return chosen
        length_ns = window.to_unix_ns - window.from_unix_ns
        return Window(max(0, window.from_unix_ns - length_ns), window.from_unix_ns)

    def paused_at(self, now_unix_ns: int) -> "View":
        """A copy of this view in which a live range ends at `now_unix_ns`."""
        return self if not self.live else replace(self, to_unix_ns=now_unix_ns)

    def following(self, last: str) -> "View":
        """A copy of this view with a live range of this length, such as 15m."""
        return replace(self, last=last, from_unix_ns=None, to_unix_ns=None, incident=None)

    def between(self, from_unix_ns: int, to_unix_ns: int) -> "View":
        """A copy of this view with a custom range."""
        return replace(
            self, last=None, from_unix_ns=from_unix_ns, to_unix_ns=to_unix_ns, incident=None
        )
