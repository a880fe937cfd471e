"""Decide from the stored requests whether the alerts of objectives fire.

The decisions equal those of the generated Prometheus rules. The evaluator evaluates each multiple
of 15 s once. After a pause, it evaluates the missed instants, so a restart changes no result.

If the clock was ahead and was corrected, incidents that began in the future are ended. Evaluation
continues after the last alert in the past, but at most `LONGEST_PAUSE_S` ago.

Requests that arrived while this process was stopped are counted, because the writer marks their
time buckets (`store.alerting.slo_marks`). Past incidents do not change.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import State
from alerts.evaluation.count_cache import CountCache
from alerts.evaluation.counting import (
    EVALUATION_S,
    LONGEST_REQUEST_S,
    SECOND_NS,
    SETTLED_S,
    Count,
    Tally,
    cached,
    count_requests,
    first_counted_range,
    history_start_s,
    read_tally,
    store_tally,
)
from alerts.evaluation.group_slots import GroupSlots
from alerts.evaluation.incidents import Incident, advance, budget_spent
from alerts.evaluation.status import window_edges
from alerts.history import History, states_at
from alerts.objectives import GoodEvents, Objective
from store import dialects
from store.alerting.incidents import evaluated_until, read_incidents, store_evaluation
from store.alerting.slo_counts import earliest_counted_s, mark_counts_incomplete
from store.alerting.slo_marks import PROBE_SOURCE, Mark, read_marks
from store.queries import newest_request_unix_ns
from telemetry.incidents import IncidentRow

LONGEST_PAUSE_S: Final = 6 * 3600
"""Missed instants longer ago than this are not evaluated, because an alert would be too late to
help."""
BEHIND_S: Final = 60
"""If the last evaluation is further in the future than this, the clock was wrong. Otherwise, the
evaluator waits until the time of the last evaluation."""
RECOUNT_SHARE: Final = 10
"""After a recount of old requests that took longer than the interval, the next recount waits for
this multiple of the duration. So a sender of old requests cannot delay an alert."""
ARRIVAL_S: Final = 15
"""Delay in seconds between an instant and its evaluation. The last rows of the instant arrive
during this delay."""
TRANSACTIONS_AT_ONCE: Final = 2_000
"""Collectors commit up to a hundred transactions per second, so one read covers at least 20 s."""


class Evaluator:
    """Evaluates objectives from the store.

    Args:
        objectives: objectives that Prometheus counts are skipped.
        keep_s: the retention of requests, or None if it is unlimited.
        alone: True if no other process evaluates objectives in the same database. Counts are then
            cached. None means True if only one process can write to the database.
        elapsed_s: a monotonic clock.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        *,
        keep_s: int | None = None,
        alone: bool | None = None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._objectives = objectives
        self._keep_s = keep_s
        self._alone = dialects.of(engine).SINGLE_WRITER if alone is None else alone
        self.slots = GroupSlots(engine)
        self._elapsed_s = elapsed_s
        self.take_over()

    def take_over(self) -> None:
        """Discard the cache, because another evaluator may have changed the database."""
        self._cache = CountCache()
        self._count: Count = self._cache.count if self._alone else count_requests
        self._recount_from_s = self._elapsed_s()
        """When late requests may be counted again, by the monotonic clock."""

    def follow(self) -> None:
        """Read which groups another process counts separately.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        self.slots.read(self._objectives)

    def evaluate(self, now_s: int) -> list[Incident]:
        """Evaluate all instants up to `now_s`. Return the open incidents, and the incidents that
        ended.

        Raises:
            StoreUnavailable: the database cannot be used; the next call continues.
        """
        changed: list[Incident] = []
        # The sender's clock may be ahead.
        newest_ns = newest_request_unix_ns(self._engine) or 0
        self._cache.begin(max(now_s, newest_ns // SECOND_NS))
        begun_s = self._elapsed_s()
        recounted = self._recount(now_s)
        self.slots.update(self._objectives, now_s)
        for objective in self._objectives:
            if not isinstance(objective.indicator, GoodEvents):
                continue
            each_group: tuple[Objective, ...] = (objective,)
            if objective.indicator.by:
                each_group = self.slots.groups_of(objective)
            count = cached(self._count)
            for each in each_group:
                assert isinstance(each.indicator, GoodEvents)
                changed += self._one(each, each.indicator, now_s, count)
        took_s = self._elapsed_s() - begun_s
        if recounted and took_s > EVALUATION_S:
            self._recount_from_s = self._elapsed_s() + RECOUNT_SHARE * took_s
        return changed

    def _recount(self, now_s: int) -> bool:
        """Count again the buckets that received requests since the last call.

        Returns: True if buckets older than 2 · `SETTLED_S` are counted now. If these buckets must
        wait, their marks stay.
        """
        settled_s = now_s - 2 * SETTLED_S
        from_s = settled_s if self._elapsed_s() < self._recount_from_s else None
        old = False
        while marks := read_marks(self._engine, TRANSACTIONS_AT_ONCE, from_s):
            self._cache.add_marks(marks)
            old |= min(mark.until_unix_s for mark in marks) - EVALUATION_S < settled_s
            probes = [mark for mark in marks if mark.source == PROBE_SOURCE]
            requests = [mark for mark in marks if mark.source != PROBE_SOURCE]
            extend = from_s is None
            mark_counts_incomplete(
                self._engine,
                self._changed_s(requests, now_s, extend=extend, probes=False),
                marks,
                self._changed_s(probes, now_s, extend=extend, probes=True),
            )
            # Commits add marks during this loop.
            if len({mark.token for mark in marks}) < TRANSACTIONS_AT_ONCE:
                break
        return old

    def _changed_s(
        self, marks: Sequence[Mark], now_s: int, *, extend: bool, probes: bool
    ) -> int | None:
        """The time from which the stored counts must be computed again, or None without marks.

        If `extend` is set, and continuous data was added before the start of the history, the start
        is moved back.
        """
        if not marks:
            return None
        changed_s, deleted_s = min(mark.until_unix_s for mark in marks) - EVALUATION_S, 0
        if self._keep_s is not None:
            # Near the end of the retention, some of a bucket's requests may already be deleted.
            min_s = now_s - self._keep_s + LONGEST_REQUEST_S
            deleted_s = max(0, min_s // EVALUATION_S * EVALUATION_S)
        counted_s = earliest_counted_s(self._engine, probes=probes)
        if counted_s is not None:
            changed_s = max(changed_s, counted_s)
            began_s = history_start_s(self._engine, now_s, probes=probes) if extend else None
            if began_s is not None and max(began_s, deleted_s) < counted_s:
                changed_s = (began_s - 1) // EVALUATION_S * EVALUATION_S
        return max(changed_s, deleted_s)

    def _one(
        self, objective: Objective, goodput: GoodEvents, now_s: int, count: Count
    ) -> list[Incident]:
        until_s = (now_s - ARRIVAL_S) // EVALUATION_S * EVALUATION_S
        before_s = evaluated_until(self._engine, objective.name)
        if before_s is None and first_counted_range(self._engine, goodput, now_s) is None:
            # Each instant is evaluated only once. The first request or probe may still end at this
            # instant.
            return []
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
            for each in _correct(incidents, until_s):
                changed[each.severity, each.fired_s] = each
        if first_s > until_s:
            return []
        store_tally(self._engine, goodput, now_s, count)
        pairs = objective.policy.pairs
        if not incidents and not changed and first_s == until_s:
            # Usually no alert fires. So first check only the sums, which the database computes
            # fast.
            quick = self._tally_at(objective, goodput, until_s, count)
            states = states_at(quick.history, until_s, objective.policy, objective.budget)
            if State.FIRING not in states.values():
                store_evaluation(self._engine, objective.name, until_s, [])
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
        known = [until_s - LONGEST_PAUSE_S]
        for row in read_incidents(self._engine, objective.name):
            known += [row.fired_unix_s, row.last_unix_s]
        last_s = max(each for each in known if each <= until_s)
        return min(until_s, last_s // EVALUATION_S * EVALUATION_S + EVALUATION_S)

    def _tally_at(
        self, objective: Objective, goodput: GoodEvents, at_s: int, count: Count
    ) -> Tally:
        edges = window_edges(objective, at_s)
        return read_tally(self._engine, goodput, min(edges), at_s, count, instants=edges)

    def _keep(
        self,
        objective: Objective,
        goodput: GoodEvents,
        until_s: int,
        changed: Sequence[Incident],
        count: Count,
    ) -> None:
        rows = []
        if changed:
            # Only `budget_spent` needs the whole period.
            from_s = min(
                min(each.began_s, objective.period_at(each.last_s).start_s) for each in changed
            )
            history = read_tally(self._engine, goodput, from_s, until_s, count).history
            rows = [_row(each, history, objective) for each in changed]
        store_evaluation(self._engine, objective.name, until_s, rows)


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


def _correct(incidents: dict[str, Incident], until_s: int) -> Iterator[Incident]:
    """End incidents that began in the future. Remove future instants from all other incidents."""
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
