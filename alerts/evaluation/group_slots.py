"""Choose which groups of an objective are counted separately. Such a group has a *slot*.

All other groups are counted as `other`. Clients can invent names, so the numbers of slots and of
stored candidates are limited:

- A free slot goes to the group that had requests in the most hours.
- A group loses its slot only to a group with more than twice as many hours. For a group without a
  slot, only the hours of the last day are counted.
- A new group in `reserved` takes the slot of the group with the fewest hours, if no slot is free.
- A group with an open incident, or in the objective's `reserved`, keeps its slot.

Objectives with the same `where`, `good` and `by` share their counts, so they share their slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from alerts import groups
from alerts.evaluation.counting import AT_ONCE, SECOND_NS, SETTLED_S, first_counted_range
from alerts.evaluation.probe_verdicts import columns_of_probes, judge_probes
from alerts.evaluation.table_verdicts import NOT_SELECTED, columns_of, judge_table
from alerts.groups import SLOTS, Group
from alerts.objectives import GoodEvents, GoodProbes, Objective
from store.access.restricted import access_of
from store.alerting.incidents import read_incidents
from store.alerting.slo_counts import CountedRange
from store.alerting.slo_groups import active_hours, give_slots, groups_with_slots, merge_group
from store.columns.request_columns import in_parts, request_columns
from store.probes import newest_probe_unix_ns, probe_table
from store.queries import newest_request_unix_ns
from telemetry.window import Window

HOUR_S: Final = 3600
REMEMBERED_HOURS: Final = 24
MAX_CANDIDATES: Final = 20 * SLOTS
"""Maximum number of candidates for a slot per objective."""
ACTIVITY_S: Final = 7 * 86_400
"""For a group with a slot, the hours of the last week are counted, because some groups have no
requests at weekends."""
EVERY_S: Final = 300
"""Slots are assigned again after this many seconds."""
FIRST_S: Final = HOUR_S
"""The first assignment reads only the requests of this many seconds, so that Tailspan starts
fast."""


class Candidates:
    """The most active groups, with the hours in which they had requests."""

    def __init__(self, most: int = MAX_CANDIDATES) -> None:
        self._most = most
        self._seen: dict[Group, tuple[set[int], int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, group: Group, hour: int, requests: int) -> None:
        """Add a number of requests that a group had in an hour."""
        hours, before = self._seen.get(group, (set(), 0))
        self._seen[group] = (hours | {hour}, before + requests)
        if len(self._seen) > 2 * self._most:
            self._seen = {each: self._seen[each] for each in self.ranked()[: self._most]}

    def forget(self, before_hour: int) -> None:
        """Forget the hours before `before_hour`."""
        self._seen = {
            group: (kept, requests)
            for group, (hours, requests) in self._seen.items()
            if (kept := {each for each in hours if each >= before_hour})
        }

    def hours(self, group: Group) -> int:
        """Number of hours in which a group had requests."""
        return len(self._seen[group][0]) if group in self._seen else 0

    def ranked(self) -> list[Group]:
        """Groups, the most active first."""
        return sorted(self._seen, key=lambda each: (-self.hours(each), -self._seen[each][1], each))


@dataclass(frozen=True, slots=True)
class SlotChanges:
    """Groups that receive a slot, and groups that lose their slot."""

    added: tuple[Group, ...]
    removed: tuple[Group, ...]


def assign_slots(
    candidates: Candidates,
    active_hours_of: dict[Group, int],
    fixed: frozenset[Group] = frozenset(),
    slots: int = SLOTS,
) -> SlotChanges:
    """Choose the groups to count separately. Free slots go to the most active candidates.

    Args:
        active_hours_of: maps each group with a slot to its number of hours with requests.
        fixed: groups that keep their slot.
    """
    added: list[Group] = []
    removed: list[Group] = []
    weakest = sorted(
        (each for each in active_hours_of if each not in fixed),
        key=lambda each: -active_hours_of[each],
    )
    free = slots - len(active_hours_of)
    while free < 0 and weakest:  # `fixed` has grown
        removed.append(weakest.pop())
        free += 1
    for group in candidates.ranked():
        if group in active_hours_of:
            continue
        if free > 0:
            free -= 1
        elif weakest and candidates.hours(group) > 2 * active_hours_of[weakest[-1]]:
            removed.append(weakest.pop())
        else:
            break
        added.append(group)
    return SlotChanges(tuple(added), tuple(removed))


def add_candidates(
    engine: Engine, goodput: GoodEvents, from_s: int, to_s: int, candidates: Candidates
) -> None:
    """Add to the candidates the groups of all requests that were received, or probes that were due,
    in [from_s, to_s)."""
    window = Window(from_s * SECOND_NS, to_s * SECOND_NS)
    if isinstance(goodput, GoodProbes):
        names = [*columns_of_probes(goodput.where, goodput.good), "at_unix_ns", *goodput.by]
        table = probe_table(engine, window, list(dict.fromkeys(names)))
        codes = judge_probes(goodput.where, goodput.good, table)
        _add(candidates, goodput, table, codes, table["at_unix_ns"].to_numpy())
        return
    columns = [*columns_of(goodput.where, goodput.good), "received_unix_ns", *goodput.by]
    for part in in_parts(engine, window, AT_ONCE):
        table = request_columns(engine, part, list(dict.fromkeys(columns)))
        codes = judge_table(goodput.where, goodput.good, table)
        _add(candidates, goodput, table, codes, table["received_unix_ns"].to_numpy())


def _add(
    candidates: Candidates,
    goodput: GoodEvents,
    table: pa.Table,
    codes: np.ndarray,
    at_unix_ns: np.ndarray,
) -> None:
    """Add the groups of the selected rows, with verdicts `codes` (n,) and times `at_unix_ns`
    (n,)."""
    none = groups.other(goodput.by)
    hours = at_unix_ns // (HOUR_S * SECOND_NS)
    found: dict[tuple[Group, int], int] = {}
    every = zip(
        groups.groups_in(table, goodput.by),
        hours.tolist(),
        (codes != NOT_SELECTED).tolist(),
        strict=True,
    )
    for group, hour, selected in every:
        if selected and group != none and len(groups.key(group)) <= groups.LONGEST_KEY:
            found[group, hour] = found.get((group, hour), 0) + 1
    for (group, hour), requests in found.items():
        candidates.add(group, hour, requests)


class GroupSlots:
    """Chooses the groups that have a slot, based on the stored requests."""

    def __init__(self, engine: Engine, slots: int = SLOTS) -> None:
        self._engine = engine
        self._slots = slots
        self._candidates: dict[str, Candidates] = {}
        self._looked_s: dict[str, int] = {}
        self._known: dict[str, tuple[Group, ...]] = {}

    def read(self, objectives: Iterable[Objective]) -> None:
        """Load from the store which groups have a slot, before the first evaluation."""
        for shared in _shared(objectives):
            self._remember(shared.goodput)

    def separate(self, goodput: GoodEvents) -> tuple[Group, ...]:
        """Groups that had a slot at the last update. Callable from any thread."""
        return self._known.get(goodput.digest, goodput.reserved)

    def groups_of(self, objective: Objective) -> tuple[Objective, ...]:
        """One objective for each group that had a slot at the last update, `other` first."""
        assert isinstance(objective.indicator, GoodEvents)
        return _each_group(objective, self.separate(objective.indicator))

    def update(self, objectives: Iterable[Objective], now_s: int) -> None:
        """Assign the slots again every `EVERY_S`."""
        for shared in _shared(objectives):
            definition = shared.goodput.digest
            looked_s = self._looked_s.get(definition)
            if looked_s is None or not looked_s <= now_s < looked_s + EVERY_S:
                self._assign(shared, now_s, looked_s)
                self._looked_s[definition] = now_s
            self._remember(shared.goodput)

    def _remember(self, goodput: GoodEvents) -> None:
        self._known[goodput.digest] = _groups_with_slots(self._engine, goodput)

    def _assign(self, shared: "_SharedSlots", now_s: int, looked_s: int | None) -> None:
        goodput = shared.goodput
        first = first_counted_range(self._engine, goodput, now_s)
        if first is None:
            return
        definition, other = goodput.digest, groups.key(groups.other(goodput.by))
        counted_ranges = groups_with_slots(self._engine, definition)
        since = counted_ranges.pop(other, None)
        candidates = self._candidates.setdefault(definition, Candidates())
        # Read a longer range than since the last update, because a request is stored only when it
        # ends. An hour that is read twice is counted once.
        from_s = max(now_s - FIRST_S, (looked_s or 0) - SETTLED_S)
        add_candidates(self._engine, goodput, min(from_s, now_s), now_s + 1, candidates)
        separate = {groups.read_key(each): each for each in counted_ranges}
        candidates.forget(now_s // HOUR_S - REMEMBERED_HOURS)
        kept = active_hours(self._engine, definition, list(counted_ranges), now_s - ACTIVITY_S)
        hours: dict[Group, int] = dict.fromkeys(goodput.reserved, 0)
        for group, key in separate.items():
            # The hours of groups in `other`, and hours that are not stored yet, are only in
            # `candidates`.
            hours[group] = max(kept[key], candidates.hours(group))
        fixed = self._burning(shared, separate) | set(goodput.reserved)
        changes = assign_slots(candidates, hours, fixed, self._slots)
        for group in changes.removed:
            merge_group(self._engine, definition, separate[group], other)
        until_s = (since or first).until_unix_s
        missing = [each for each in goodput.reserved if each not in separate]
        new = {
            groups.key(each): CountedRange(until_s, until_s) for each in (*missing, *changes.added)
        }
        if since is None:
            new[other] = first
        if new:
            give_slots(self._engine, definition, new)

    def _burning(self, shared: "_SharedSlots", separate: Iterable[Group]) -> frozenset[Group]:
        by = shared.goodput.by
        return frozenset(
            each
            for each in separate
            if any(
                read_incidents(self._engine, groups.name(name, by, each), open_only=True)
                for name in shared.objectives
            )
        )


@dataclass(frozen=True, slots=True)
class _SharedSlots:
    """Objectives that share their slots, because their counts have the same key.

    Args:
        goodput: `reserved` has the groups of all these objectives.
        objectives: their names.
    """

    goodput: GoodEvents
    objectives: tuple[str, ...]


def _shared(objectives: Iterable[Objective]) -> list[_SharedSlots]:
    found: dict[str, _SharedSlots] = {}
    for each in objectives:
        goodput = each.indicator
        if not isinstance(goodput, GoodEvents) or not goodput.by:
            continue
        before = found.get(goodput.digest, _SharedSlots(goodput, ()))
        reserved = tuple(dict.fromkeys([*before.goodput.reserved, *goodput.reserved]))
        found[goodput.digest] = _SharedSlots(
            replace(goodput, reserved=reserved), (*before.objectives, each.name)
        )
    return list(found.values())


def groups_of(engine: Engine, objective: Objective) -> tuple[Objective, ...]:
    """One objective for each group with a slot, `other` first. This function does not write to the
    store.

    Before the first evaluation, these are the groups that would get a slot.
    """
    assert isinstance(objective.indicator, GoodEvents)
    return _each_group(objective, _groups_with_slots(engine, objective.indicator))


def _each_group(objective: Objective, separate: tuple[Group, ...]) -> tuple[Objective, ...]:
    return tuple(
        objective.of_group(each, separate) for each in (groups.other(objective.by), *separate)
    )


def _groups_with_slots(engine: Engine, goodput: GoodEvents) -> tuple[Group, ...]:
    counted_ranges = groups_with_slots(engine, goodput.digest)
    separate = {*goodput.reserved, *map(groups.read_key, counted_ranges)} - {
        groups.other(goodput.by)
    }
    if not counted_ranges and (newest_ns := _newest_unix_ns(engine, goodput)) is not None:
        candidates = Candidates()
        newest_s = newest_ns // SECOND_NS
        add_candidates(engine, goodput, newest_s - FIRST_S, newest_s + 1, candidates)
        reserved = dict.fromkeys(separate, 0)
        separate |= set(assign_slots(candidates, reserved, frozenset(reserved)).added)
    return tuple(sorted(separate))


def _newest_unix_ns(engine: Engine, goodput: GoodEvents) -> int | None:
    if isinstance(goodput, GoodProbes):
        return newest_probe_unix_ns(engine)
    return newest_request_unix_ns(engine)


def expanded(engine: Engine, objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """Replace each objective that has groups with one objective per group that `engine` may access.

    This function does not write to the store.
    """
    found: list[Objective] = []
    for each in objectives:
        grouped = isinstance(each.indicator, GoodEvents) and each.indicator.by
        found += groups_of(engine, each) if grouped else [each]
    access = access_of(engine)
    if access is None or not access.limits_rows:
        return tuple(found)
    return tuple(each for each in found if each.name in access.slos)
