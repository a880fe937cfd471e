"""The live evaluator: the verdicts of the rules, from the store, for those without Prometheus.

Evaluates at whole multiples of 15 s, each once: after a pause it goes on with the instants it
missed, so that a restart changes no verdict. What it is given is the present; it has no clock
(`telemetry.corroborated_time` has).

Where the clock was ahead when an objective was last evaluated, that evaluation lies in the future.
Evaluating resumes after the newest incident that is not, or `LONGEST_PAUSE_S` ago: instants that
are evaluated twice have the same verdicts, and write the same incidents. An incident that only
began in the future ends.

The writer marks the steps of the requests it stores (`store.alerting.slo_marks`), so that
those which come late (a replay, a sender that was cut off) are counted, too, whenever this process
was stopped.
Verdicts of the past stand.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import State
from alerts.counting import (
    EVALUATION_S,
    LONGEST_REQUEST_S,
    SECOND_NS,
    SETTLED_S,
    Count,
    Tally,
    count_requests,
    keep_tally,
    once,
    read_tally,
)
from alerts.fresh import FreshCounts
from alerts.history import History, states_at
from alerts.incidents import Incident, advance, budget_spent
from alerts.objectives import Goodput, Objective
from alerts.places import Places
from alerts.status import window_edges
from store import dialects
from store.alerting.incidents import IncidentRow, evaluated_until, keep_evaluation, read_incidents
from store.alerting.slo_counts import count_again
from store.alerting.slo_marks import read_marks
from store.queries import newest_request_unix_ns

LONGEST_PAUSE_S: Final = 6 * 3600
"""What lies further back is not evaluated any more: it would wake someone for yesterday."""
BEHIND_S: Final = 60
"""How far in the future the last evaluation must lie. A smaller step back is waited out: the
present follows steps of 5 s and keeps others off."""
RECOUNT_SHARE: Final = 10
"""Where counting again takes longer than from one evaluation to the next, it takes at most one in
so many seconds: a sender that says something of last week each second must not delay a page."""
ARRIVAL_S: Final = 15
"""Requests that have just ended are given so long to arrive."""
TRANSACTIONS_AT_ONCE: Final = 2_000
"""Whose marks are in memory at once: a busy Tailspan commits up to a hundred times a second."""


class Evaluator:
    """Evaluates objectives against a store.

    Args:
        engine: from `open_database`.
        objectives: those not counted by Tailspan are left out.
        keep_s: how long the store keeps requests; None for ever. What was counted of those
            that are gone is never counted again.
        elapsed_s: seconds that never jump, to measure what counting again takes.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        *,
        keep_s: int | None = None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._objectives = objectives
        self._keep_s = keep_s
        self._fresh = FreshCounts()
        # Of what others write we do not hear.
        self._count: Count = self._fresh.count if dialects.of(engine).ONE_WRITER else count_requests
        self.places = Places(engine)
        self._elapsed_s = elapsed_s
        self._recount_from_s = elapsed_s()
        """Not before is anything old counted again."""

    def evaluate(self, now_s: int) -> list[Incident]:
        """Evaluate up to the present; the incidents that are open, or ended by this.

        Raises:
            StoreUnavailable: the database cannot be used; the next call goes on.
        """
        changed: list[Incident] = []
        newest_ns = newest_request_unix_ns(self._engine) or 0  # its clock may be ahead of ours
        self._fresh.begin(max(now_s, newest_ns // SECOND_NS))
        begun_s = self._elapsed_s()
        recounted = self._recount(now_s)
        for objective in self._objectives:
            if not isinstance(objective.indicator, Goodput):
                continue
            each_group: tuple[Objective, ...] = (objective,)
            if objective.indicator.by:
                each_group = self.places.update(objective, now_s)
            count = once(self._count)
            for each in each_group:
                assert isinstance(each.indicator, Goodput)
                changed += self._one(each, each.indicator, now_s, count)
        took_s = self._elapsed_s() - begun_s
        if recounted and took_s > EVALUATION_S:
            self._recount_from_s = self._elapsed_s() + RECOUNT_SHARE * took_s
        return changed

    def _recount(self, now_s: int) -> bool:
        """Have what came since the last time counted, also where that was in another process.

        Returns:
            Whether anything old is counted again. While that has to wait, its marks stay.
        """
        settled_s = now_s - 2 * SETTLED_S
        from_s = settled_s if self._elapsed_s() < self._recount_from_s else None
        old = False
        while marks := read_marks(self._engine, TRANSACTIONS_AT_ONCE, from_s):
            # Counts are made after this, of rows that were committed before it.
            self._fresh.hear(marks)
            oldest_s = min(mark.until_unix_s for mark in marks) - EVALUATION_S
            old |= oldest_s < settled_s
            if self._keep_s is not None:
                # Those received just within may have ended later than all that is still there.
                least_s = now_s - self._keep_s + LONGEST_REQUEST_S
                oldest_s = max(oldest_s, least_s // EVALUATION_S * EVALUATION_S)
            count_again(self._engine, oldest_s, marks)
        return old

    def _one(
        self, objective: Objective, goodput: Goodput, now_s: int, count: Count
    ) -> list[Incident]:
        until_s = (now_s - ARRIVAL_S) // EVALUATION_S * EVALUATION_S
        before_s = evaluated_until(self._engine, objective.name)
        first_s = (
            until_s if before_s is None else max(before_s + EVALUATION_S, until_s - LONGEST_PAUSE_S)
        )
        first_s = -(-first_s // EVALUATION_S) * EVALUATION_S
        incidents = {
            row.severity: _incident(row)
            for row in read_incidents(self._engine, objective.name, open_only=True)
        }
        changed: dict[tuple[str, int], Incident] = {}
        if before_s is not None and before_s > until_s + BEHIND_S:
            first_s = self._resume_s(objective, until_s)
            for each in _put_right(incidents, until_s):
                changed[each.severity, each.fired_s] = each
        if first_s > until_s:
            return []
        keep_tally(self._engine, goodput, now_s, count)
        pairs = objective.policy.pairs
        if not incidents and not changed and first_s == until_s:
            # Mostly nothing burns: then the database adds up what it kept.
            quick = self._tally_at(objective, goodput, until_s, count)
            states = states_at(quick.history, until_s, objective.policy, objective.budget)
            if State.FIRING not in states.values():
                keep_evaluation(self._engine, objective.name, until_s, [])
                return []
        longest_s = max(pair.long_s for pair in pairs)
        from_s = first_s - 2 * longest_s
        tally = read_tally(self._engine, goodput, from_s, until_s, count)
        for at_s in range(first_s, until_s + 1, EVALUATION_S):
            for severity in dict.fromkeys(pair.severity for pair in pairs):
                known = incidents.get(severity)
                found = advance(known, objective, severity, tally.history, at_s)
                if found is None:
                    continue
                if tally.real is not tally.history and (known is None or known.simulated):
                    alone = advance(None, objective, severity, tally.real, at_s)
                    found = replace(found, simulated=alone is None)
                changed[severity, found.fired_s] = found
                if found.ended_s is None:
                    incidents[severity] = found
                else:
                    incidents.pop(severity, None)
        self._keep(objective, goodput, until_s, list(changed.values()), count)
        return list(changed.values())

    def _resume_s(self, objective: Objective, until_s: int) -> int:
        """The first instant to evaluate again after evaluations in the future."""
        known = [until_s - LONGEST_PAUSE_S]
        for row in read_incidents(self._engine, objective.name):
            known += [row.fired_unix_s, row.last_unix_s]
        last_s = max(each for each in known if each <= until_s)
        return min(until_s, last_s // EVALUATION_S * EVALUATION_S + EVALUATION_S)

    def _tally_at(self, objective: Objective, goodput: Goodput, at_s: int, count: Count) -> Tally:
        """The counts of each window that ends at an instant."""
        edges = window_edges(objective, at_s)
        return read_tally(self._engine, goodput, min(edges), at_s, count, instants=edges)

    def _keep(
        self,
        objective: Objective,
        goodput: Goodput,
        until_s: int,
        changed: Sequence[Incident],
        count: Count,
    ) -> None:
        rows = []
        if changed:
            # The whole period is read only where a burn needs a share of its budget.
            from_s = min(
                min(each.began_s, objective.period_at(each.last_s).start_s) for each in changed
            )
            history = read_tally(self._engine, goodput, from_s, until_s, count).history
            rows = [_row(each, history, objective) for each in changed]
        keep_evaluation(self._engine, objective.name, until_s, rows)


def _incident(row: IncidentRow) -> Incident:
    return Incident(
        row.slo,
        row.severity,
        row.began_unix_s,
        row.fired_unix_s,
        row.last_unix_s,
        Fraction(row.peak_burn),
        row.peak_unix_s,
        row.ended_unix_s,
        bool(row.simulated),
    )


def _put_right(incidents: dict[str, Incident], until_s: int) -> Iterator[Incident]:
    """What open incidents become after evaluations in the future; one that began there ends."""
    for severity, each in list(incidents.items()):
        if each.fired_s > until_s:
            del incidents[severity]
            yield replace(each, ended_s=each.last_s)
        elif each.last_s > until_s:
            last_s, peak_s = min(each.last_s, until_s), min(each.peak_s, until_s)
            incidents[severity] = replace(each, last_s=last_s, peak_s=peak_s)
            yield incidents[severity]


def _row(incident: Incident, history: History, objective: Objective) -> IncidentRow:
    spent = budget_spent(incident, history, objective)
    return IncidentRow(
        slo=incident.slo,
        severity=incident.severity,
        fired_unix_s=incident.fired_s,
        began_unix_s=incident.began_s,
        last_unix_s=incident.last_s,
        ended_unix_s=incident.ended_s,
        peak_unix_s=incident.peak_s,
        peak_burn=str(incident.peak_burn),
        budget_spent=None if spent is None else str(spent),
        simulated=incident.simulated,
    )
