"""The stored answer of an incident, which every page, command and message shows.

Replays of an open incident at different times give different shares. So only the server computes
the answer, at defined times (`server.likely_cause`). If an incident of severity page and an
incident of severity ticket overlap, they share one answer.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.answer_process import took_too_long
from analysis.incident import IncidentQuestions, IncidentVerdict, leading_incident
from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Explanation, ShareMethod
from diagnosis.latency.parts import PHASE
from diagnosis.question import Question
from store.alerting.incident_answers import (
    AnswerRow,
    Phase,
    answers_of,
    read_answers,
    store_incident_answer,
)
from store.alerting.incidents import read_incidents
from telemetry import dataclass_json
from telemetry.incidents import IncidentRow

VERSION: Final = 1
"""The version of the method that computes answers. Increase it whenever a change of the method
gives different shares for the same data. The server then computes the answers of the last day
again. Earlier answers show their version."""
MAX_BYTES: Final = 2**20
"""Maximum length of an answer in bytes. An answer with four causes and two latencies has 20 kB."""

_NS: Final = 10**9
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Explanations:
    explanations: Sequence[Explanation]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """The question that a stored answer is about."""

    objective: str
    question: Question


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer.

    Attributes:
        phase: whether the answer was computed while the incident was open, or after its end.
        verdict: the verdict, with the explanations of all latencies of the objective.
    """

    computed_unix_s: int
    version: int
    phase: Phase
    objective: str
    verdict: IncidentVerdict

    @property
    def questions(self) -> IncidentQuestions:
        """The question about each latency."""
        first = self.verdict.first.question
        metrics = (each.question.metric for each in self.explanations)
        return IncidentQuestions(first.window, first.baseline, tuple(metrics), first.where)

    @property
    def explanations(self) -> Sequence[Explanation]:
        """The explanations of the latencies. The verdict is about the first explanation."""
        return (self.verdict.first, *self.verdict.others)

    @property
    def replayed(self) -> bool:
        """Whether the first explanation has shares from a replay."""
        return self.verdict.first.method is ShareMethod.COUNTERFACTUAL

    @property
    def replay_took_too_long(self) -> bool:
        """Whether the replay exceeded its time limit. The server computes the answer again later.
        Until then, commands, and pages that are not live, run a replay themselves."""
        return took_too_long(self.verdict.first.not_replayed)

    def explained(self, question: Question) -> Explanation | None:
        """The stored explanation of a question.

        Return None if this answer is about another question."""
        return next((each for each in self.explanations if each.question == question), None)

    def answers_whole(self, where: Mapping[str, str | None]) -> bool:
        """Whether a filter is empty or equals the incident's filter."""
        return not where or where == self.verdict.first.question.where

    def computed(self, moment: Callable[[int], str]) -> str:
        """A sentence on when the answer was computed, and from which requests."""
        window = self.verdict.first.question.window
        sentence = (
            f"Computed at {moment(self.computed_unix_s * _NS)} from the requests of"
            f" {moment(window.from_unix_ns)} to {moment(window.to_unix_ns)}"
        )
        if self.version == VERSION:
            return f"{sentence}."
        return (
            f"{sentence}, by version {self.version} of the method (the current version: {VERSION})."
        )


def stored_answer(
    engine: Engine, objective: Objective, incident: IncidentRow
) -> StoredAnswer | None:
    """The newest answer of an incident (`answered_incident`), or None.

    Answers about an earlier version of the objective are ignored. Unreadable answers are ignored
    too, with a line in the log.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    incident = answered_incident(engine, incident)
    return _newest(answers_of(engine, incident), objective, incident)


def answered_incident(engine: Engine, incident: IncidentRow) -> IncidentRow:
    """The incident whose stored answer is shown for `incident` (`leading_incident`).

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    if incident.severity == "page":
        return incident
    return leading_incident(read_incidents(engine, incident.slo), incident)


def stored_sentences(
    engine: Engine, objective: Objective, incidents: Sequence[IncidentRow]
) -> dict[tuple[str, int], str]:
    """Return the causes of an objective's incidents as sentences. The keys are the severity and the
    time of the alert. Incidents without an answer or a cause are absent.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    if not incidents:
        return {}
    rows = read_answers(engine, objective.name, min(each.fired_unix_s for each in incidents))
    found = {}
    for each in incidents:
        key = each.severity, each.fired_unix_s
        own = [row for row in rows if (row.severity, row.fired_unix_s) == key]
        answer = _newest(own, objective, each)
        if answer is not None and (sentence := answer.verdict.sentence) is not None:
            found[key] = sentence
    return found


def store_verdict(
    engine: Engine,
    objective: Objective,
    incident: IncidentRow,
    verdict: IncidentVerdict,
    computed_unix_s: int,
) -> None:
    """Store the answer of an incident. It replaces an earlier answer of the same phase.

    Raises:
        StoreUnavailable: the database cannot be written.
        ValueError: the answer is too long, or a number is not finite.
    """
    question = AskedQuestion(objective.statement, verdict.first.question)
    answer = dataclass_json.write(_Explanations((verdict.first, *verdict.others)))
    if len(answer) > MAX_BYTES:
        raise ValueError(f"the answer has {len(answer):,} bytes; allowed: {MAX_BYTES:,}")
    store_incident_answer(
        engine,
        AnswerRow(
            incident.slo,
            incident.severity,
            incident.fired_unix_s,
            Phase.OPEN if incident.ended_unix_s is None else Phase.ENDED,
            computed_unix_s,
            VERSION,
            dataclass_json.write(question),
            answer,
        ),
    )


def _newest(
    rows: Sequence[AnswerRow], objective: Objective, incident: IncidentRow
) -> StoredAnswer | None:
    # The evaluator may reopen an incident that it ended, if the clock was wrong. Answers of the
    # phase `ENDED` are then not used.
    over = incident.ended_unix_s is not None
    usable = [row for row in rows if over or row.phase == Phase.OPEN]
    usable.sort(key=lambda row: (row.phase == Phase.ENDED, row.computed_unix_s), reverse=True)
    read = (_read(row) for row in usable)
    return next((each for each in read if each and each.objective == objective.statement), None)


@lru_cache(maxsize=64)
def _read(row: AnswerRow) -> StoredAnswer | None:
    # The result is cached, so an unreadable answer is logged only once.
    try:
        if len(row.answer) > MAX_BYTES:
            raise ValueError(f"it has {len(row.answer):,} bytes; allowed: {MAX_BYTES:,}")
        question = dataclass_json.read(AskedQuestion, row.question)
        found = dataclass_json.read(_Explanations, row.answer).explanations
        if not found or found[0].question != question.question:
            raise ValueError("its explanation is about another question")
        _check_names(found)
        phase = Phase(row.phase)
    except (ValueError, TypeError) as error:
        _log.warning(
            "the stored answer of an incident of %s is ignored: %s",
            json.dumps(row.slo)[:80],
            str(error)[:200],
        )
        return None
    verdict = IncidentVerdict(found[0], tuple(found[1:]))
    return StoredAnswer(row.computed_unix_s, row.version, phase, question.objective, verdict)


def _check_names(explanations: Sequence[Explanation]) -> None:
    for each in explanations:
        for cause in (*each.causes, *each.others):
            if cause.id not in SUMMARIES:
                raise ValueError(f"it names the cause {cause.id[:80]!r}, which is not known")
        for part in each.parts:
            if part.part not in PHASE:
                raise ValueError(f"it names the part {part.part[:80]!r}, which is not known")
