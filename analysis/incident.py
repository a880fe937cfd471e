"""One verdict for an incident, from all the latencies that its objective covers.

The verdict is taken from the latency by which most of the incident's bad requests missed the
objective. The command, the page and the alert use it from here, in the same words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from alerts.explorer_link import FILTERS
from alerts.expression import Comparison, conjuncts
from alerts.incidents import stretches
from alerts.objectives import Goodput, Objective
from analysis.baseline import usual_baseline
from analysis.explaining import explained, known_incidents
from analysis.thresholds import metrics_of
from analysis.words import first_cause
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from store.incidents import IncidentRow

_NS: Final = 10**9

Explain = Callable[[Engine, Question, Sequence[Objective]], Explanation]


@dataclass(frozen=True, slots=True)
class IncidentQuestions:
    """A stretch, what to compare it with, and the latencies in the objective; none where it is
    about none, as an objective on errors is."""

    window: Span
    baseline: Span
    metrics: tuple[Metric, ...]
    equals: Mapping[str, str | None]

    def of(self, metric: Metric) -> Question:
        """The question about one latency."""
        return Question(metric, self.window, self.baseline, self.equals)


@dataclass(frozen=True, slots=True)
class OneVerdict:
    """The explanation that speaks for the incident, and those of the other latencies."""

    first: Explanation
    others: tuple[Explanation, ...] = ()

    @property
    def sentence(self) -> str | None:
        """The first cause in a sentence; None where no cause is found."""
        return first_cause(self.first)


def questions_of(
    objective: Objective,
    incident: IncidentRow,
    at_s: int,
    known: Sequence[IncidentRow] = (),
) -> IncidentQuestions:
    """From its beginning to its end, or to `at_s` while it goes on, against as much before it.

    Args:
        objective: the incident's.
        incident: the one in question.
        at_s: now, in unix seconds.
        known: other incidents: the time to compare with does not overlap them.
    """
    when = stretches(incident.began_unix_s, incident.ended_unix_s, at_s)
    goodput = objective.indicator if isinstance(objective.indicator, Goodput) else None
    window = Span(when.from_s * _NS, when.until_s * _NS)
    usual = usual_baseline(window, known, (when.from_s - when.before_s) * _NS)
    return IncidentQuestions(
        window,
        usual.span,
        () if goodput is None else metrics_of(goodput),
        {} if goodput is None else _equals(goodput),
    )


def read_questions(
    engine: Engine, objective: Objective, incident: IncidentRow, at_s: int
) -> IncidentQuestions:
    """The same as `questions_of`; reads the other incidents from the database."""
    span = Span(incident.began_unix_s * _NS, max(at_s, incident.began_unix_s + 1) * _NS)
    return questions_of(objective, incident, at_s, known_incidents(engine, span))


def incident_verdict(
    engine: Engine,
    objective: Objective,
    incident: IncidentRow,
    at_s: int,
    explain: Explain = explained,
) -> OneVerdict | None:
    """Explain an incident; None where its objective is about no latency."""
    asked = read_questions(engine, objective, incident, at_s)
    told = [explain(engine, asked.of(metric), [objective]) for metric in asked.metrics]
    return one_verdict(told)


def one_verdict(told: Sequence[Explanation]) -> OneVerdict | None:
    """Of several latencies of one stretch, the one that speaks for all; None of none."""
    if not told:
        return None
    first = max(told, key=lambda each: (bool(each.causes), _hurt(each), growth(each)))
    return OneVerdict(first, tuple(each for each in told if each is not first))


def growth(told: Explanation) -> float:
    """How many times as long as before."""
    return (told.now_s or 0.0) / max(told.baseline_s or 0.0, 1e-6)


def _hurt(told: Explanation) -> float:
    """By how much the share of requests rose that broke a threshold of this latency."""
    return max((each.baseline_kept - each.kept for each in told.attained), default=0.0)


def _equals(goodput: Goodput) -> dict[str, str | None]:
    """Which requests the objective is about, as far as labels say so."""
    return {
        each.field: str(each.value)
        for each in (conjuncts(goodput.where) if goodput.where else ())
        if isinstance(each, Comparison) and each.field in FILTERS and each.operator == "=="
    }
