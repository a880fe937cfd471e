"""The question of a comparison: two ranges, or two sets of requests of the same range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from alerts.objectives import Objective
from analysis.compare.decision import QUANTILES
from analysis.compare.verdict import MARGIN
from analysis.compare.work_terms import METRICS
from telemetry.labels import REQUEST_LABELS
from telemetry.window import Window

QUANTILE: Final = "p95"
"""The default percentile. P99 needs about four times as many requests as P95."""
MAX_MARGIN: Final = 10.0
VERSION: Final = "version"
"""The version of vLLM. It is stored with the starts of engines, and not with requests."""
SIDE_LABELS: Final = (*REQUEST_LABELS, VERSION)
SIDES: Final = ("before", "after")
"""The names of the two sides of a comparison, as parameters."""
PROCESS_LABELS: Final = ("config", VERSION)
"""The labels whose value can change when a replica restarts."""
SPLITS: Final = ("replica", *PROCESS_LABELS)
"""The labels by which the Compare page divides one range into two sides."""


class CompareError(ValueError):
    """The question cannot be answered."""


@dataclass(frozen=True, slots=True)
class CompareSide:
    """The requests before or after a change."""

    window: Window
    equals: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompareQuestion:
    """Two sides, the latency and percentile to compare, and the margin.

    Raises:
        CompareError: a value is not allowed.
    """

    before: CompareSide
    after: CompareSide
    metric: str = "ttft"
    quantile: str = QUANTILE
    margin: float = MARGIN
    """A change up to this ratio is acceptable."""
    looks: bool = True
    """True if the confidence interval must be valid for all runs of the comparison together."""
    objectives: Sequence[Objective] = ()

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise CompareError(f"metric {self.metric!r}; allowed: {', '.join(METRICS)}")
        if self.quantile not in QUANTILES:
            raise CompareError(f"quantile {self.quantile!r}; allowed: {', '.join(QUANTILES)}")
        if not 0 < self.margin <= MAX_MARGIN:
            raise CompareError(
                f"margin {self.margin:g}; allowed: above 0, up to {MAX_MARGIN:g} (0.05 is 5 %)"
            )
        for name, side in (("before", self.before), ("after", self.after)):
            if side.window.from_unix_ns >= side.window.to_unix_ns:
                raise CompareError(f"the range {name} must end after it begins")
            if unknown := set(side.equals) - set(SIDE_LABELS):
                raise CompareError(
                    f"unknown label {min(unknown)!r}; allowed: {', '.join(SIDE_LABELS)}"
                )
        if self.overlap and self.before.equals == self.after.equals:
            raise CompareError(
                "the ranges before and after overlap; choose ranges without common requests, or"
                " different labels for each side"
            )

    @property
    def overlap(self) -> bool:
        """Whether the two ranges overlap."""
        a, b = self.before.window, self.after.window
        return a.from_unix_ns < b.to_unix_ns and b.from_unix_ns < a.to_unix_ns

    @property
    def labels(self) -> list[str]:
        """The labels that select the requests before or after the change."""
        return list(dict.fromkeys([*self.before.equals, *self.after.equals]))

    @property
    def shared_labels(self) -> Mapping[str, str | None]:
        """The labels of both sides that select requests, and not servers."""
        before, after = self.before.equals.items(), self.after.equals.items()
        return dict(each for each in before if each in after and each[0] not in SPLITS)

    @property
    def columns(self) -> list[str]:
        """The columns of requests that are needed to select by `labels`."""
        return [name for name in self.labels if name != VERSION]
