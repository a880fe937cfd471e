"""Compute how much of a latency budget each layer used in the slow requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import Engine

from analysis.budget.budget import AROUND, LatencyBudget
from analysis.budget.measured_parts import COLUMNS, Extent, Measured, layers_of, measure
from analysis.budget.spending import BudgetSpending, min_requests, spend
from store.queries import request_table, simulated
from telemetry.window import Window


@dataclass(frozen=True, slots=True)
class BudgetQuestion:
    """A budget, and the requests to compare with the budget."""

    budget: LatencyBudget
    window: Window
    equals: Mapping[str, str | None] = field(default_factory=dict)


class BudgetVerdict(StrEnum):
    """Whether the percentile is within the budget."""

    WITHIN = "within"
    OVER = "over"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True)
class BudgetAnswer:
    """How the slow requests spent the budget.

    Attributes:
        measured: the number of requests for each `Extent`. A request with a large extent also
            counts for the smaller extents.
        left_out: for each reason, the number of requests that are not counted.
        spending: the time in each layer, or None if there are fewer than `needed` requests.
    """

    question: BudgetQuestion
    requests: int
    measured: Mapping[Extent, int]
    left_out: Mapping[str, int]
    extent: Extent
    spending: BudgetSpending | None
    needed: int
    replicas: int
    simulated: bool

    @property
    def verdict(self) -> BudgetVerdict:
        """Whether the percentile is within the budget of the layers whose time is known."""
        if self.spending is None:
            return BudgetVerdict.INSUFFICIENT_DATA
        over = self.spending.percentile_s > self.spending.total_s
        return BudgetVerdict.OVER if over else BudgetVerdict.WITHIN


def answer_budget(engine: Engine, question: BudgetQuestion) -> BudgetAnswer:
    """Return how much of a budget each layer used.

    If the budget has layers outside the server, only requests with a client's span are used. If
    there are too few of these requests, all requests are used. The layers outside the server are
    then unknown.
    """
    budget, window = question.budget, question.window
    requests = request_table(engine, window, equals=question.equals, columns=COLUMNS)
    found = measure(engine, window, requests, budget.latency)
    numbers = {extent: int((found.extents >= extent).sum()) for extent in Extent}
    needed = min_requests(budget.percentile)
    wanted = _required_extent(budget)
    extent = next(
        (each for each in reversed(Extent) if each <= wanted and numbers[each] >= needed),
        Extent.SERVER,
    )
    return BudgetAnswer(
        question=question,
        requests=requests.num_rows,
        measured=numbers,
        left_out=_left_out(found, numbers[extent]),
        extent=extent,
        spending=_spending(budget, found, extent, numbers[extent], needed),
        needed=needed,
        replicas=found.replicas,
        simulated=simulated(engine, window),
    )


def _required_extent(budget: LatencyBudget) -> Extent:
    layers = {line.partition(".")[0] for line in budget.layers_ns}
    if layers & set(AROUND):
        return Extent.APPLICATION
    return Extent.NETWORK if "network" in layers else Extent.SERVER


def _spending(
    budget: LatencyBudget, found: Measured, extent: Extent, number: int, needed: int
) -> BudgetSpending | None:
    if number < needed:
        return None
    return spend(budget, found.seconds[found.extents >= extent], layers_of(extent, budget.latency))


def _left_out(found: Measured, counted: int) -> dict[str, int]:
    reasons = {
        "not_streamed": found.not_streamed,
        "unanswered": found.unanswered,
        "without_phases": found.without_phases,
        "without_client_span": len(found) - counted,
    }
    return {reason: number for reason, number in reasons.items() if number}
