"""The cause of the open incident, for the headline of the Overview page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.access.evidence import explained_where
from analysis.explain import joined_evidence, windows_of
from analysis.incident import incident_verdict
from analysis.incident_answer import StoredAnswer, stored_answer
from analysis.slo_states import SloState
from analysis.thresholds import thresholds
from analysis.unfinished_requests import with_unfinished_requests
from diagnosis.explain import explain
from diagnosis.explanation import Cause, Explanation
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.question import Question
from store.access.restricted import with_masked_rows
from ui.frame.read_cache import cached_evidence, shared

EVERY_S: Final = 60
"""Minimum seconds between two searches. A search of a million requests takes a second."""


class CurrentCause(NamedTuple):
    """A cause of the open incident.

    `answer` is the incident's stored answer that contains the cause. It is None if the cause was
    computed now.
    """

    cause: Cause
    answer: StoredAnswer | None


def current_cause(engine: Engine, states: Sequence[SloState]) -> CurrentCause | None:
    """The largest cause of the open paging incident, or None.

    Until the incident's answer is stored, the cause's share is an estimate from the step ledger.
    """
    paging = ((state, one) for state in states for one in state.open if one.severity == "page")
    state, incident = next(paging, (None, None))
    if state is None or incident is None:
        return None
    objective, row = state.objective, incident.row
    answer = stored_answer(engine, objective, row)
    if answer is not None:
        return _first_cause(answer.verdict.first, answer)
    at_s = state.status.at_s // EVERY_S * EVERY_S

    def find() -> Explanation | None:
        verdict = incident_verdict(engine, objective, row, at_s, _explain_cached)
        return verdict.first if verdict else None

    key = ("cause", row.slo, row.severity, row.fired_unix_s, objective.statement, at_s)
    found = shared(engine, key, find)
    return None if found is None else _first_cause(found, None)


def _first_cause(found: Explanation, answer: StoredAnswer | None) -> CurrentCause | None:
    return CurrentCause(found.causes[0], answer) if found.causes else None


def _explain_cached(
    engine: Engine, question: Question, objectives: Sequence[Objective]
) -> Explanation:
    """Explain as `analysis.explain` does, but from cached columns of requests."""
    question = replace(question, where=explained_where(engine, question.where))
    kept = cached_evidence(engine)
    windows = windows_of(question)
    found = joined_evidence([kept.read(each, {}) for each in windows])
    found = with_unfinished_requests(with_masked_rows(engine), found, windows)
    return explain(
        requests_of(found.requests),
        servers_of(found.engines, found.gpus, found.starts, found.cold_starts),
        question,
        thresholds(objectives, question.metric),
    )
