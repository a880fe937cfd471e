"""The cause of the open incident, for the headline of the Overview page."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Engine

from analysis.incident import incident_verdict
from analysis.incident_answer import StoredAnswer, stored_answer
from analysis.slo_states import SloState
from diagnosis.explanation import Cause, Explanation
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
        verdict = incident_verdict(engine, objective, row, at_s, cached_evidence(engine).explain)
        return verdict.first if verdict else None

    key = ("cause", row.slo, row.severity, row.fired_unix_s, objective.statement, at_s)
    found = shared(engine, key, find)
    return None if found is None else _first_cause(found, None)


def _first_cause(found: Explanation, answer: StoredAnswer | None) -> CurrentCause | None:
    return CurrentCause(found.causes[0], answer) if found.causes else None
