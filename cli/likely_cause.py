"""The likely cause of an incident, in a sentence for who is woken by it.

Asked again while it goes on, but not at each evaluation: it reads every request of the stretch.
"""

import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from cli.explaining import explained
from cli.explanation_text import NAMES
from cli.incident_questions import growth, questions_of
from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Explanation
from diagnosis.question import Question
from store.errors import StoreError
from store.incidents import IncidentRow

AGAIN_S: Final = 300

_log = logging.getLogger(__name__)

Explain = Callable[[Engine, Question, dict[str, str | None]], Explanation]


class LikelyCauses:
    """Asks the diagnosis about incidents, and remembers.

    Args:
        engine: from `open_database`.
        explain: answers a question from it.
    """

    def __init__(self, engine: Engine, explain: Explain = explained) -> None:
        self._engine = engine
        self._explain = explain
        self._known: dict[tuple[str, str, int], tuple[int, str | None]] = {}

    def __call__(self, objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        """A sentence; None where the objective is on no latency, or no cause is found."""
        key = (incident.slo, incident.severity, incident.fired_unix_s)
        asked_s, known = self._known.get(key, (-AGAIN_S, None))
        over = incident.ended_unix_s is not None
        if at_s - asked_s < AGAIN_S or (over and known is not None):
            return known
        try:
            found = self._ask(objective, incident, at_s)
        except StoreError as error:
            _log.warning("the cause of %s's incident cannot be asked for: %s", incident.slo, error)
            return known
        # What was found once is not forgotten because it is passing.
        self._known[key] = at_s, found or known
        return found or known

    def _ask(self, objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        asked = questions_of(objective, incident, at_s)
        told = [
            self._explain(self._engine, asked.of(metric), asked.equals) for metric in asked.metrics
        ]
        # Of several latencies in one promise, the one that grew most, with a cause to tell.
        return sentence(max((each for each in told if each.causes), key=growth, default=None))


def sentence(told: Explanation | None) -> str | None:
    """The first cause, with its share and the first thing to try; None where there is none."""
    if told is None or not told.causes:
        return None
    first = told.causes[0]
    where = ", ".join(f"{key} {value}" for key, value in first.where.items())
    said = (
        f"{first.share:.0%} of the growth of {NAMES[told.question.metric.value]}:"
        f" {SUMMARIES[first.id]}{f' ({where})' if where else ''}."
    )
    if first.levers:
        lever = first.levers[0]
        said += f" Try: {lever.action}{f', {lever.flag}' if lever.flag else ''}."
    return said
