"""The reader's selection: the range, the filters and each page's settings. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from analysis.budget.budget_file import PRESETS
from store.queries import Window
from telemetry.durations import parse_ns
from ui.frame.pages import FIRST
from ui.kit.replica_measures import FIRST_MEASURE
from ui.kit.request_key import RequestKey
from ui.kit.time_bins import SECOND_NS

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
"""The time to first content, a latency that only some pages show. Rollups and replays do not have
this latency."""
LABELS: Final = ("model", "replica", "tenant", "route", "outcome")
STEPS: Final = ("day", "hour")
"""The time steps of the compliance history on the SLOs page."""
DECIDERS: Final = ("slo", "size")
"""The ways to detect incidents: by SLO compliance, or by how much the latency grew."""
EARLIER: Final = {"24h": "vs. one day earlier", "7d": "vs. one week earlier"}
"""Names of the baselines that a page offers. The keys are durations: 24h is the same range one day
earlier. An address may contain any other duration."""
QUANTILES: Final = ("p50", "p95", "p99")
DEFAULT_QUANTILE: Final = "p95"
NO_BUDGET: Final = "none"
OWN_BUDGET: Final = "file"
BUDGETS: Final = (NO_BUDGET, *PRESETS, OWN_BUDGET)
"""The latency budgets of the Requests page: none, a preset, or the reader's file."""
PAYERS: Final = ("tenant", "model", "route", "replica", "outcome")


@dataclass(frozen=True, slots=True)
class View:
    """The reader's selection.

    With `last` alone, the range ends at the current time. With `last` and `to_unix_ns`, the range
    has the length `last` and ends at `to_unix_ns`. A custom range has `from_unix_ns` and
    `to_unix_ns`, and no `last`.
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
    """The range to compare with. A duration such as 24h selects the range that is 24 hours earlier.
    None selects the previous range."""
    incident: str | None = None
    decide: str = DECIDERS[0]
    by: str = STEPS[0]
    measure: str = FIRST_MEASURE
    per: str = PAYERS[0]
    change: str = ""
    """The changes whose effect the What if page predicts, separated by commas, in the form that
    `replay.edits` parses."""
    region: str = ""
    endpoint: str = ""
    quantile: str = DEFAULT_QUANTILE
    split: str = ""
    """The label of the values `before` and `after`, which the Compare page compares. If the label
    is empty, the page compares the range with its baseline."""
    before: str = ""
    """The label's value before the change, such as the stable replica."""
    after: str = ""
    """The label's value after the change, such as the canary."""
    budget: str = NO_BUDGET
    sweep: str = ""
    """The values whose effects the What if page predicts one by one, in the form that
    `what_if_search.sweep_of` parses."""

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
        """The name of the latency in addresses and commands, such as `ttft`."""
        return next(name for name, column in LATENCIES.items() if column == self.latency)

    def window(self, now_unix_ns: int) -> Window:
        """Return the half-open range to show."""
        to = now_unix_ns if self.to_unix_ns is None else self.to_unix_ns
        if self.last is not None:
            return Window(max(0, to - RANGES_S[self.last] * SECOND_NS), to)
        return Window(to if self.from_unix_ns is None else self.from_unix_ns, to)

    def chosen_baseline(self, window: Window) -> Window | None:
        """Return the baseline that the reader chose for a range, or None.

        Also return None if the baseline overlaps the range, or begins before 1970.
        """
        if not isinstance(self.baseline, str):
            return self.baseline
        ago_ns = parse_ns(self.baseline)
        length_ns = window.to_unix_ns - window.from_unix_ns
        if not length_ns <= ago_ns <= window.from_unix_ns:
            return None
        return Window(window.from_unix_ns - ago_ns, window.to_unix_ns - ago_ns)

    def baseline_of(self, window: Window) -> Window:
        """Return the chosen baseline, or the range of the same length before the given range."""
        if (chosen := self.chosen_baseline(window)) is not None:
            return chosen
        length_ns = window.to_unix_ns - window.from_unix_ns
        return Window(max(0, window.from_unix_ns - length_ns), window.from_unix_ns)

    def paused_at(self, now_unix_ns: int) -> "View":
        """Return this view with a fixed range. A live range then ends at `now_unix_ns`."""
        return self if not self.live else replace(self, to_unix_ns=now_unix_ns)

    def following(self, last: str) -> "View":
        """Return this view with a live range of this length, such as 15m."""
        return replace(self, last=last, from_unix_ns=None, to_unix_ns=None, incident=None)

    def between(self, from_unix_ns: int, to_unix_ns: int) -> "View":
        """Return this view with a custom range."""
        return replace(
            self, last=None, from_unix_ns=from_unix_ns, to_unix_ns=to_unix_ns, incident=None
        )
