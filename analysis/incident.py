"""Find the verdict on an incident: the explanation of the latency that violates its objective most.

If an objective has several latency thresholds, the verdict is about the latency whose threshold the
most requests missed. Commands, pages and alerts all use this module, so that their texts agree.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from alerts.explorer_links import FILTERS
from alerts.expression import FieldComparison, conjuncts
from alerts.objectives import Goodput, Objective
from analysis.baseline import usual_baseline
from analysis.cause_sentences import first_cause_sentence
from analysis.explain import explain_question, known_incidents
from analysis.thresholds import metrics_of
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from store.alerting.incidents import read_incidents
from telemetry.incidents import IncidentRow

MIN_EXPLAINED_S: Final = 300
"""Minimum length of the window in seconds. The window of a new incident is extended to this
length."""
MIN_BEFORE_S: Final = 1_800

_NS: Final = 10**9

Explain = Callable[[Engine, Question, Sequence[Objective]], Explanation]


@dataclass(frozen=True, slots=True)
class IncidentQuestions:
    """The questions about an incident.

    `metrics` is empty if the objective has no latency threshold."""

    window: Span
    baseline: Span
    metrics: tuple[Metric, ...]
    equals: Mapping[str, str | None]

    def of(self, metric: Metric) -> Question:
        """Return the question about one latency."""
        return Question(metric, self.window, self.baseline, self.equals)


@dataclass(frozen=True, slots=True)
class IncidentVerdict:
    """The verdict on an incident.

    `first` explains the latency that the verdict is about."""

    first: Explanation
    others: tuple[Explanation, ...] = ()

    @property
    def sentence(self) -> str | None:
        """The first cause as a sentence, or None if no cause was found."""
        return first_cause_sentence(self.first)


def questions_of(
    objective: Objective,
    incident: IncidentRow,
    at_s: int,
    known: Sequence[IncidentRow] = (),
) -> IncidentQuestions:
    """The questions about an incident, from its start to its end.

    If the incident is open, the range ends at `at_s`. The baseline does not overlap `known`
    incidents."""
    until_s = at_s if incident.ended_unix_s is None else incident.ended_unix_s
    from_s = max(0, min(incident.began_unix_s, until_s - MIN_EXPLAINED_S))
    goodput = objective.indicator if isinstance(objective.indicator, Goodput) else None
    window = Span(from_s * _NS, until_s * _NS)
    usual = usual_baseline(window, known, max(MIN_BEFORE_S, until_s - from_s) * _NS)
    return IncidentQuestions(
        window,
        usual.span,
        () if goodput is None else metrics_of(goodput),
        {} if goodput is None else _required_labels(goodput),
    )


def split_incident_name(named: str) -> tuple[str, str | None]:
    """Split `SLO@TIME` into the SLO and the time. The time is None if there is no @TIME."""
    # The name of a group (chat{tenant="a@b"}) may contain an @.
    group, brace, rest = named.rpartition("}")
    name, at, instant = rest.partition("@")
    return group + brace + name, instant if at else None


def leading_incident(rows: Iterable[IncidentRow], incident: IncidentRow) -> IncidentRow:
    """The incident whose stored answer is shown for `incident`.

    For an incident of severity ticket, it is the newest overlapping incident of severity page."""
    if incident.severity == "page":
        return incident

    def overlaps(row: IncidentRow) -> bool:
        return (incident.ended_unix_s is None or row.began_unix_s <= incident.ended_unix_s) and (
            row.ended_unix_s is None or row.ended_unix_s >= incident.began_unix_s
        )

    pages = (
        row for row in rows if row.slo == incident.slo and row.severity == "page" and overlaps(row)
    )
    return max(pages, key=lambda row: row.fired_unix_s, default=incident)


def incident_at(rows: Sequence[IncidentRow], at_s: int | None) -> IncidentRow | None:
    """Return one incident of an objective.

    If an incident of severity page overlaps it, return that incident instead (`leading_incident`).

    Args:
        at_s: any time while the incident was open, or None for the newest incident.
        rows: the objective's incidents, newest first.
    """
    found = rows[:1]
    if at_s is not None:
        found = [row for row in rows if row.fired_unix_s == at_s] or [
            row
            for row in rows
            if row.began_unix_s <= at_s <= max(row.last_unix_s, row.ended_unix_s or 0)
        ]
    if not found:
        return None
    return leading_incident(rows, min(found, key=lambda row: row.severity != "page"))


def find_incident(
    engine: Engine, slo: str, at_s: int | None
) -> tuple[IncidentRow | None, Sequence[IncidentRow]]:
    """Find an incident of an objective (`incident_at`). Also return all its incidents, the newest
    first."""
    rows = read_incidents(engine, slo)
    return incident_at(rows, at_s), rows


def read_questions(
    engine: Engine, objective: Objective, incident: IncidentRow, at_s: int
) -> IncidentQuestions:
    """The questions about an incident, with the other incidents from the store."""
    span = Span(incident.began_unix_s * _NS, max(at_s, incident.began_unix_s + 1) * _NS)
    return questions_of(objective, incident, at_s, known_incidents(engine, span))


def incident_verdict(
    engine: Engine,
    objective: Objective,
    incident: IncidentRow,
    at_s: int,
    explain: Explain = explain_question,
) -> IncidentVerdict | None:
    """Return the verdict on an incident, or None if its objective has no latency threshold."""
    questions = read_questions(engine, objective, incident, at_s)
    return leading_verdict(
        [explain(engine, questions.of(metric), [objective]) for metric in questions.metrics]
    )


def leading_verdict(explanations: Sequence[Explanation]) -> IncidentVerdict | None:
    """Return the verdict from the explanations of several latencies, or None if there are none."""
    if not explanations:
        return None
    first = max(
        explanations, key=lambda each: (bool(each.causes), _attainment_loss(each), growth(each))
    )
    return IncidentVerdict(first, tuple(each for each in explanations if each is not first))


def growth(explanation: Explanation) -> float:
    """The latency of the window divided by the latency of the baseline."""
    return (explanation.now_s or 0.0) / max(explanation.baseline_s or 0.0, 1e-6)


def _attainment_loss(explanation: Explanation) -> float:
    """The decrease of the attainment since the baseline."""
    return max(
        (each.baseline_attained_ratio - each.attained_ratio for each in explanation.attainments),
        default=0.0,
    )


def _required_labels(goodput: Goodput) -> dict[str, str | None]:
    return {
        each.field: str(each.value)
        for each in (conjuncts(goodput.where) if goodput.where else ())
        if isinstance(each, FieldComparison) and each.field in FILTERS and each.operator == "=="
    }
