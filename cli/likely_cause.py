"""The likely cause of an incident, in a sentence for who is woken by it.

Asked again while it goes on, but not at each evaluation: it reads every request of the stretch.
"""

import logging
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.explaining import explained
from analysis.incident import Explain, incident_verdict
from store.errors import StoreError
from store.incidents import IncidentRow

AGAIN_S: Final = 300

_log = logging.getLogger(__name__)


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
        found = incident_verdict(self._engine, objective, incident, at_s, self._explain)
        return None if found is None else found.sentence
