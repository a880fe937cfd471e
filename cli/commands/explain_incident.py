"""`tailspan explain --incident`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
from sqlalchemy import Engine

from alerts.errors import AlertsError
from alerts.evaluation.group_slots import expanded
from alerts.objectives import GoodProbes, Objective
from alerts.openslo.reader import load
from analysis.cause_sentences import first_cause_sentence
from analysis.explain import explain_question
from analysis.incident import (
    IncidentVerdict,
    find_incident,
    leading_verdict,
    read_questions,
    split_incident_name,
)
from analysis.incident_answer import StoredAnswer, stored_answer
from cli.options import time_range
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Span
from telemetry import time_text
from telemetry.incidents import IncidentRow
from telemetry.printable import printable

SHOWN = 5
"""Maximum incidents that an error lists. The newest incidents are listed first."""
_WIDEST = 600
"""Maximum characters of a sentence about a cause. The Root cause page prints as many."""


class IncidentAnswer(NamedTuple):
    """An incident, its verdict, and the explanation to print.

    The explanation is about the latency of `--metric`. Without `--metric`, it is about the latency
    of the verdict. `stored` is None if the verdict was computed now.
    """

    incident: IncidentRow
    verdict: IncidentVerdict
    explanation: Explanation
    stored: StoredAnswer | None = None

    def with_shares(self, replayed: Callable[[Explanation], Explanation]) -> "IncidentAnswer":
        """Compute the shares of the causes by replay, for each latency that has causes.

        A stored answer already has these shares.
        """
        known = () if self.stored is None else self.stored.explanations

        def shares(each: Explanation) -> Explanation:
            decided = any(each is one for one in known)
            shown = each.causes or each is self.explanation or each is self.verdict.first
            return each if decided or not shown else replayed(each)

        explanations = [self.verdict.first, *self.verdict.others]
        first, *others = found = [shares(each) for each in explanations]
        same = (
            now for each, now in zip(explanations, found, strict=True) if each is self.explanation
        )
        explanation = next(same, None) or shares(self.explanation)
        verdict = IncidentVerdict(first, tuple(others))
        return self._replace(verdict=verdict, explanation=explanation)


def incident_explained(
    engine: Engine,
    named: str,
    objectives: Sequence[Path],
    metric: Metric | None,
    where: Mapping[str, str | None],
    baseline: Callable[[Span], Span | None],
    stored: bool = True,
) -> IncidentAnswer:
    """Explain one incident, for all latencies of its objective.

    Return the stored answer, except in three cases. In these cases, compute a new answer:
    - The user chose a baseline.
    - `where` selects only some requests.
    - The replay of the stored answer took too long.

    Args:
        named: the name of an objective selects its newest incident. `NAME@TIME` selects the
            incident at this time.
        metric: the latency to print. With None, it is the latency of the verdict.
        where: selects requests among the requests that the objective counts.
        baseline: returns the baseline for the incident's window. With None, the baseline is the
            time before the incident.
        stored: whether a stored answer may be used.

    Raises:
        click.UsageError: the objective or incident does not exist, the objective has no latency
            target, or it does not count the selected requests.
    """
    name, instant = split_incident_name(named)
    objective = _objective(engine, name, objectives)
    incident = _incident(engine, objective, instant)
    if isinstance(objective.indicator, GoodProbes):
        raise click.UsageError(
            f"--incident {named!r}: {name} counts probes, and this command explains requests;"
            " `tailspan outside` shows the probes"
        )
    questions = read_questions(engine, objective, incident, int(time.time()))
    for label, value in where.items():
        if questions.equals.get(label, value) != value:
            raise click.UsageError(
                f"--where {label}={value or ''}: {name} counts only requests with"
                f" {label}={questions.equals[label]}"
            )
    chosen, equals = baseline(questions.window), {**questions.equals, **where}
    answer = None
    if stored and chosen is None and equals == questions.equals:
        answer = stored_answer(engine, objective, incident)
        if answer is not None and answer.replay_took_too_long:
            answer = None
    if answer is not None:
        questions = answer.questions
        explanations = {each.question.metric: each for each in answer.explanations}
    else:
        questions = replace(questions, equals=equals, baseline=chosen or questions.baseline)
        explanations = {
            each: explain_question(engine, questions.of(each), [objective])
            for each in questions.metrics
        }
    if metric is not None and metric not in explanations:
        explanations[metric] = explain_question(engine, questions.of(metric), [objective])
    if answer is not None:
        verdict: IncidentVerdict | None = answer.verdict
    else:
        verdict = leading_verdict(
            [explanations[each] for each in questions.metrics or explanations]
        )
    if verdict is None:
        raise click.UsageError(
            f"--incident {named!r}: {name} has no latency target; choose a latency to explain:"
            f" --metric {'|'.join(each.value for each in Metric)}"
        )
    shown = verdict.first if metric is None else explanations[metric]
    return IncidentAnswer(incident, verdict, shown, answer)


def incident_line(incident: IncidentRow) -> str:
    """Describe the incident in one line."""
    end = incident.ended_unix_s
    return (
        f"{incident.slo} ({incident.severity}):"
        f" began {time_text.moment(incident.began_unix_s * 10**9)} UTC,"
        f" alerted {time_text.moment(incident.fired_unix_s * 10**9)},"
        f" {'ongoing' if end is None else f'ended {time_text.moment(end * 10**9)}'}."
    )


def verdict_lines(answer: IncidentAnswer) -> Iterator[str]:
    """Yield the verdict, when a stored answer was computed, and the top cause of each other latency
    (for example, of TPOT if the incident concerns TTFT)."""
    if answer.verdict.sentence is not None:
        yield f"Verdict: {printable(answer.verdict.sentence, _WIDEST)}"
    if answer.stored is not None:
        yield answer.stored.computed(lambda unix_ns: f"{time_text.moment(unix_ns)} UTC")
    for each in answer.verdict.others:
        sentence = first_cause_sentence(each)
        if each.question.metric is not answer.explanation.question.metric and sentence:
            yield f"Also: {printable(sentence, _WIDEST)}"


def as_json(incident: IncidentRow) -> dict[str, Any]:
    """The incident as JSON, with instants in unix seconds."""
    return {
        "slo": incident.slo,
        "severity": incident.severity,
        "began": incident.began_unix_s,
        "fired": incident.fired_unix_s,
        "ended": incident.ended_unix_s,
    }


def stored_as_json(stored: StoredAnswer | None) -> dict[str, Any] | None:
    """Return when a stored answer was computed, as JSON."""
    if stored is None:
        return None
    return {
        "computed": stored.computed_unix_s,
        "phase": stored.phase.value,
        "version": stored.version,
    }


def objectives_at(paths: Sequence[Path]) -> tuple[Objective, ...]:
    """Read the objectives in files and folders, or raise click.UsageError."""
    try:
        return load(paths).objectives
    except FileNotFoundError as error:
        raise click.UsageError(f"--objectives {error}") from error
    except AlertsError as error:
        raise click.UsageError(f"--objectives {error}") from error


def _objective(engine: Engine, name: str, paths: Sequence[Path]) -> Objective:
    found = expanded(engine, objectives_at(paths))
    for each in found:
        if each.name == name:
            return each
    raise click.UsageError(
        f"--incident {name!r}: no objective has this name;"
        f" allowed: {', '.join(each.name for each in found)}"
    )


def _incident(engine: Engine, objective: Objective, instant: str | None) -> IncidentRow:
    try:
        at_s = None if instant is None else time_range.instant_ns(instant) // 10**9
    except ValueError as error:
        raise click.UsageError(f"--incident {objective.name}@{instant}: {error}") from error
    row, rows = find_incident(engine, objective.name, at_s)
    if not rows:
        raise click.UsageError(
            f"--incident {objective.name!r}: this objective has had no incident;"
            " `tailspan slo status` shows its burn rate"
        )
    if row is not None:
        return row
    began = ", ".join(time_text.moment(row.began_unix_s * 10**9) for row in rows[:SHOWN])
    raise click.UsageError(
        f"--incident {objective.name}@{instant}: no incident at this time; the newest incidents"
        f" began {began} (UTC)"
    )
