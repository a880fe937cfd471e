"""Compare latencies before and after the latest deploy. The server does this automatically
(README.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Goodput, Objective
from analysis.compare.answer import DecisionResult, decided, read_sides, too_many
from analysis.compare.decision import MIN_REQUESTS, QUANTILES
from analysis.compare.processes import read_processes
from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.server_changes import ServerChange, server_change
from analysis.compare.verdict import CompareVerdict
from analysis.thresholds import metrics_of
from telemetry.quantiles import least_number
from telemetry.window import Window

STEPS_S: Final = (60, 120, 240, 480, 960, 1_920, 3_600)
"""The lengths of the range after a deploy, in seconds."""
LONGEST_S: Final = STEPS_S[-1]
MAX_REQUESTS: Final = 50_000
"""Maximum number of requests to read on each side. A comparison uses 10,000 of them."""
QUANTILE: Final = "p99"
"""The percentile to compare. An objective of 99 % good requests is met if the P99 is within its
threshold."""
DEFAULT_METRICS: Final = ("ttft", "tpot")
_NS: Final = 10**9
_ORDER: Final = (
    CompareVerdict.WORSE,
    CompareVerdict.UNDECIDED,
    CompareVerdict.NO_WORSE,
    CompareVerdict.BETTER,
)


@dataclass(frozen=True, slots=True)
class Deploy:
    """A change of the servers, and the earlier range with which the time after the change is
    compared."""

    change: ServerChange
    before: Window

    def after(self, to_unix_ns: int) -> Window | None:
        """Return the longest range that begins at the deploy, has a length in `STEPS_S`, and ends
        by `to_unix_ns`. Return None if even the shortest range ends later."""
        begun_ns = self.change.to_unix_ns
        passed = [each for each in STEPS_S if each * _NS <= to_unix_ns - begun_ns]
        return Window(begun_ns, begun_ns + passed[-1] * _NS) if passed else None


@dataclass(frozen=True, slots=True)
class DeployAnswer:
    """The compared ranges, and the decision on each latency, the worst verdict first."""

    deploy: Deploy
    before: Window
    after: Window
    found: Sequence[DecisionResult]


def latest_deploy(engine: Engine, window: Window) -> Deploy | None:
    """The latest deploy in a range, or None. This function reads no requests."""
    change = server_change(engine, window)
    if change is None:
        return None
    hour = Window(max(0, change.from_unix_ns - LONGEST_S * _NS), change.from_unix_ns)
    earlier = server_change(engine, hour)
    begun_ns = hour.from_unix_ns if earlier is None else earlier.to_unix_ns
    return Deploy(change, Window(begun_ns, change.from_unix_ns))


def metrics_of_interest(objectives: Sequence[Objective]) -> tuple[str, ...]:
    """Return the latencies in the objectives' conditions, or TTFT and TPOT if there are none."""
    goodputs = [each.indicator for each in objectives if isinstance(each.indicator, Goodput)]
    found = dict.fromkeys(each.value for goodput in goodputs for each in metrics_of(goodput))
    return tuple(found) or DEFAULT_METRICS


def compare_deploy(
    engine: Engine, deploy: Deploy, after: Window, metrics: Sequence[str]
) -> DeployAnswer:
    """Compare latencies before and after a deploy.

    Raises:
        CompareError: the ranges cannot be compared.
    """
    before, least_ns = deploy.before, STEPS_S[0] * _NS
    while _length_ns(before) > least_ns and too_many(engine, before, MAX_REQUESTS):
        before = Window(before.to_unix_ns - _length_ns(before) // 2, before.to_unix_ns)
    while _length_ns(after) > least_ns and too_many(engine, after, MAX_REQUESTS):
        after = Window(after.from_unix_ns, after.from_unix_ns + _length_ns(after) // 2)
    questions = [
        CompareQuestion(CompareSide(before), CompareSide(after), each, QUANTILE) for each in metrics
    ]
    sides, _ = read_sides(engine, questions[0])
    processes = read_processes(engine, questions[0], sides)
    found = sorted((decided(sides, each, processes) for each in questions), key=_rank)
    return DeployAnswer(deploy, before, after, found)


def missing(found: DecisionResult) -> int:
    """Return the number of requests that must still arrive after the deploy before a verdict is
    possible."""
    return max(0, min_requests(found.question.quantile) - found.requests_after)


def min_requests(quantile: str) -> int:
    """Return the minimum number of requests on each side for a percentile such as p99."""
    return max(MIN_REQUESTS, least_number(QUANTILES[quantile]))


def _length_ns(window: Window) -> int:
    return window.to_unix_ns - window.from_unix_ns


def _rank(found: DecisionResult) -> tuple[int, float]:
    return _ORDER.index(found.decision.verdict), -(found.decision.change_ratio or 0.0)
