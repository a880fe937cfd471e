"""Compute the likely cause of each incident in the background, and store it.

An answer is computed when the incident alerts. It is computed again each time the incident's age
has doubled, and after the incident's end. The computation runs in a separate process with limits on
time and memory. Notifications do not wait for it. If only the replay fails, the causes' shares are
estimates from the step ledger.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Engine

from alerts.evaluation.group_slots import expanded
from alerts.objectives import Goodput, Objective
from analysis.answer_process import MAX_S, Step, answer_in_child, took_too_long
from analysis.counterfactual.explain import with_replayed_shares
from analysis.incident import IncidentVerdict, incident_verdict
from analysis.incident_answer import (
    VERSION,
    StoredAnswer,
    answered_incident,
    store_verdict,
    stored_answer,
)
from analysis.thresholds import metrics_of
from store.alerting.incident_answers import Phase
from store.alerting.incidents import read_overlapping
from telemetry import child_process
from telemetry.incidents import IncidentRow
from telemetry.store_errors import StoreError, StoreUnavailable
from telemetry.tasks import Task

FIRST_S: Final = 60.0
"""Seconds until the first computation. The explorer compiles the replay in this time."""
RETRY_S: Final = 300
"""Seconds until the next computation if the incident is open and no cause was found."""
RETRY_REPLAY_S: Final = MAX_S
"""Seconds to wait after a replay that took too long. Each further such replay in a row doubles the
wait."""
RECENT_S: Final = 86_400
"""Maximum age of ended incidents (seconds since their end) that are computed again after an
upgrade."""
NICE: Final = 10
"""Nice level of the replay. The diagnosis runs at normal priority, because it takes only about a
second."""

ComputeVerdict = Callable[[Objective, IncidentRow, int], IncidentVerdict]
"""Returns the verdict at an instant in unix seconds. Slow. Raises StoreError or VerdictError."""
Key = tuple[str, str, int]

_log = logging.getLogger(__name__)


class VerdictError(Exception):
    """The separate process ended without a verdict."""


class DueIncident(NamedTuple):
    """An incident whose answer is due. `at_s` is the incident's last evaluation or its end, in unix
    seconds."""

    objective: Objective
    incident: IncidentRow
    at_s: int


class Tried(NamedTuple):
    """The last computation of an answer in this process. It may have failed.

    Attributes:
        age_s: the incident's age.
        too_long: the number of replays in a row that took too long.
    """

    age_s: int
    phase: Phase
    at_unix_s: float
    too_long: int = 0


class IncidentAnswers:
    """Computes and stores the answers of incidents in a thread.

    Args:
        compute_verdict: computes a verdict. If None, a separate process computes it.
        found: a function that the thread calls after each computation.
        evaluates: whether this process evaluates the objectives. If it does not, it computes no
            answers.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        *,
        compute_verdict: ComputeVerdict | None = None,
        found: Callable[[], None] = lambda: None,
        evaluates: Callable[[], bool] = lambda: True,
        clock_s: Callable[[], float] = time.time,
        first_s: float = FIRST_S,
    ) -> None:
        self.task = Task("likely cause")
        self._engine = engine
        self._objectives = [each for each in objectives if isinstance(each.indicator, Goodput)]
        self._compute_verdict = compute_verdict or compute_verdict_in_child(engine)
        self._found = found
        self._evaluates = evaluates
        self._clock_s = clock_s
        self._first_s = first_s
        self._tried: dict[Key, Tried] = {}
        self._done: set[Key] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="likely-cause", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self.task.alive = self._thread.is_alive

    def evaluated(self) -> None:
        """Wake the thread after an evaluation."""
        self._wake.set()

    def stop(self) -> None:
        """Start no new computation. If a computation is running, it ends with this process."""
        self._stop.set()
        self._wake.set()

    def sentence(self, objective: Objective, incident: IncidentRow, _at_s: int) -> str | None:
        """The stored likely cause, or None. May raise StoreUnavailable."""
        answer = stored_answer(self._engine, objective, incident)
        return None if answer is None else answer.verdict.sentence

    def step(self) -> None:
        """Compute the answers that are due. May raise StoreUnavailable."""
        while self._is_working() and (due := self._next()) is not None:
            self._compute(due)
            self._found()

    def _run(self) -> None:
        self._stop.wait(self._first_s)
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self.step()
            except Exception as error:
                self.task.failed(error)
                _log.warning("the causes of incidents cannot be computed: %s", error)

    def _is_working(self) -> bool:
        return not self._stop.is_set() and self._evaluates()

    def _next(self) -> DueIncident | None:
        now_s = int(self._clock_s())
        rows = read_overlapping(self._engine, now_s - RECENT_S, now_s + 1)
        keys = {_key(row) for row in rows}
        self._tried = {key: age for key, age in self._tried.items() if key in keys}
        self._done &= keys
        rows = [row for row in rows if _key(row) not in self._done]
        if not rows:
            return None
        objectives = {each.name: each for each in expanded(self._engine, self._objectives)}
        rows.sort(key=lambda row: (row.ended_unix_s is not None, row.severity != "page"))
        for row in rows:
            objective = objectives.get(row.slo)
            if objective is None or not _has_latencies(objective):
                continue
            if answered_incident(self._engine, row) != row:
                continue  # the answer belongs to the overlapping incident of severity "page"
            answer = stored_answer(self._engine, objective, row)
            tried = self._tried.get(_key(row))
            if is_due(row, answer, tried, now_s):
                at_s = row.last_unix_s if row.ended_unix_s is None else row.ended_unix_s
                return DueIncident(objective, row, at_s)
            if row.ended_unix_s is not None and not (tried and tried.too_long):
                self._done.add(_key(row))
        return None

    def _compute(self, due: DueIncident) -> None:
        objective, incident, at_s = due
        key = _key(incident)
        too_long = tried.too_long if (tried := self._tried.get(key)) else 0
        self._tried[key] = Tried(_age_s(incident), _phase(incident), self._clock_s())
        try:
            verdict = self._compute_verdict(objective, incident, at_s)
            if not self._is_working():
                return
            if took_too_long(verdict.first.not_replayed):
                self._tried[key] = self._tried[key]._replace(
                    at_unix_s=self._clock_s(), too_long=too_long + 1
                )
            earlier = stored_answer(self._engine, objective, incident)
            if _is_better(verdict, earlier, incident):
                store_verdict(self._engine, objective, incident, verdict, int(self._clock_s()))
        except StoreError:
            self._tried.pop(key)  # try again when the database is available
            raise
        except Exception as error:
            self.task.failed(error)
            _log.warning("the cause of %s's incident cannot be found: %s", incident.slo, error)
        else:
            self.task.succeeded(time.time())


def is_due(
    incident: IncidentRow, answer: StoredAnswer | None, tried: Tried | None, now_s: float
) -> bool:
    """Whether the answer must be computed now. `tried` is None before the first try."""
    if tried is None:
        if answer is None or answer.version != VERSION or answer.replay_took_too_long:
            return True
    elif tried.too_long:
        wait_s = RETRY_REPLAY_S * 2 ** (tried.too_long - 1)
        if now_s >= tried.at_unix_s + wait_s:
            return True
    tried_s = 0 if tried is None else tried.age_s
    if incident.ended_unix_s is not None:
        # An ended incident does not change, so a failed computation would fail again.
        if tried is not None and tried.phase is Phase.ENDED:
            return False
        return answer is None or answer.version != VERSION or answer.phase is not Phase.ENDED
    if answer is None:
        return _age_s(incident) >= tried_s + RETRY_S
    return _age_s(incident) >= 2 * max(tried_s, answer.verdict.first.question.window.seconds)


def _is_better(
    verdict: IncidentVerdict, earlier: StoredAnswer | None, incident: IncidentRow
) -> bool:
    """Whether a new verdict replaces the stored answer.

    A new verdict about an open incident needs a cause. A stored answer with shares from a replay by
    this version of the method is kept in two cases:
    - The incident is open, and the new verdict has no replay.
    - The incident has ended, the replay of the new verdict exceeded its time limit, and both
      answers have the same start of the range.
    """
    is_open = incident.ended_unix_s is None
    if is_open and not verdict.first.causes:
        return False
    if earlier is None or not earlier.replayed or earlier.version != VERSION:
        return True
    if is_open:
        return verdict.first.replay is not None
    same_start = _from_unix_ns(earlier.verdict) == _from_unix_ns(verdict)
    return not (same_start and took_too_long(verdict.first.not_replayed))


def _from_unix_ns(verdict: IncidentVerdict) -> int:
    return verdict.first.question.window.from_unix_ns


def _has_latencies(objective: Objective) -> bool:
    return isinstance(objective.indicator, Goodput) and bool(metrics_of(objective.indicator))


def _key(row: IncidentRow) -> Key:
    return row.slo, row.severity, row.fired_unix_s


def _phase(row: IncidentRow) -> Phase:
    return Phase.OPEN if row.ended_unix_s is None else Phase.ENDED


def _age_s(row: IncidentRow) -> int:
    return row.last_unix_s - row.began_unix_s


def compute_verdict_in_child(engine: Engine) -> ComputeVerdict:
    """A function that computes the verdict in a separate process."""

    def compute_verdict(objective: Objective, incident: IncidentRow, at_s: int) -> IncidentVerdict:
        found, problem, unavailable = answer_in_child(
            engine, partial(verdicts, objective, incident, at_s)
        )
        if unavailable:
            raise StoreUnavailable(problem)  # the caller tries again later
        if found is None:
            raise VerdictError(problem)
        verdict: IncidentVerdict = found
        if problem is None:
            return verdict
        _log.warning("the causes of %s's incident were not replayed: %s", incident.slo, problem)
        return _not_replayed(verdict, problem)

    return compute_verdict


def verdicts(
    objective: Objective,
    incident: IncidentRow,
    at_s: int,
    engine: Engine,
    progress: Step,
    _compiling: Step,
) -> Iterator[IncidentVerdict]:
    """Yield verdicts with increasingly better shares of the causes.

    In the first verdict, all shares are estimates from the step ledger. In the second verdict, the
    shares of the first latency are from a replay. In the third verdict, all shares are from
    replays. Nothing is yielded if the objective has no latency target. This function runs in the
    child process.
    """
    found = incident_verdict(engine, objective, incident, at_s)
    if found is None:
        return
    yield found
    child_process.lower_priority(NICE)
    found = replace(found, first=with_replayed_shares(engine, found.first, progress))
    yield found
    others = [with_replayed_shares(engine, each, progress) for each in found.others]
    yield replace(found, others=tuple(others))


def _not_replayed(verdict: IncidentVerdict, problem: str) -> IncidentVerdict:
    first, *others = (
        replace(each, not_replayed=problem)
        if each.causes and each.replay is None and each.not_replayed is None
        else each
        for each in (verdict.first, *verdict.others)
    )
    return IncidentVerdict(first, tuple(others))
