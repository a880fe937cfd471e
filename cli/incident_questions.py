"""What to ask about an incident: which latencies, when, against when, of which requests."""

from dataclasses import dataclass
from typing import Final

from alerts.burn_rules import FILTERS, LATENCIES
from alerts.expression import Comparison, comparisons, conjuncts
from alerts.incidents import stretches
from alerts.objectives import Goodput, Objective
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from store.incidents import IncidentRow

_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class IncidentQuestions:
    """A stretch, what to hold it against, and the promised latencies; none where it promises
    none, as an objective on errors does."""

    window: Span
    baseline: Span
    metrics: tuple[Metric, ...]
    equals: dict[str, str | None]

    def of(self, metric: Metric) -> Question:
        """The question about one latency."""
        return Question(metric, self.window, self.baseline)


def questions_of(objective: Objective, incident: IncidentRow, at_s: int) -> IncidentQuestions:
    """From its beginning to its end, or to `at_s` while it goes on, against as much before it."""
    when = stretches(incident.began_unix_s, incident.ended_unix_s, at_s)
    goodput = objective.indicator if isinstance(objective.indicator, Goodput) else None
    return IncidentQuestions(
        Span(when.from_s * _NS, when.until_s * _NS),
        Span(when.before_s * _NS, when.from_s * _NS),
        () if goodput is None else _promised(goodput),
        {} if goodput is None else _equals(goodput),
    )


def growth(told: Explanation) -> float:
    """How many times as long as before."""
    return (told.now_s or 0.0) / max(told.baseline_s or 0.0, 1e-6)


def _promised(goodput: Goodput) -> tuple[Metric, ...]:
    """The latencies that the objective promises, each once."""
    fields = dict.fromkeys(leaf.field for leaf in comparisons(goodput.good))
    return tuple(Metric(LATENCIES[field]) for field in fields if field in LATENCIES)


def _equals(goodput: Goodput) -> dict[str, str | None]:
    """Which requests it promises it of, as far as labels say so."""
    return {
        each.field: str(each.value)
        for each in (conjuncts(goodput.where) if goodput.where else ())
        if isinstance(each, Comparison) and each.field in FILTERS and each.operator == "=="
    }
