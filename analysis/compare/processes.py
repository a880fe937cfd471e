"""Find the processes that served both sides of a comparison, and other processes of the same
configuration.

A process is a replica from one start of its engines to the next.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.compare.attainment import Chosen
from analysis.compare.decision import Criteria
from analysis.compare.process_effect import ProcessEffect, difference_of, process_effect
from analysis.compare.question import CompareQuestion
from analysis.compare.sides import COLUMNS, SideRequests, group_numbers, renamed, requests_of
from analysis.what_if import matching
from replay.arrivals import BoolArray
from store.queries import request_table
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart, loading_from
from telemetry.window import Window

LOOKBACK_NS: Final = 7 * 86_400 * 10**9
"""How far back to look for earlier processes."""
MAX_PROCESSES: Final = 8
"""Maximum number of processes of a configuration. From 8 values, a standard deviation can be
estimated to within a factor of 2."""
LONGEST_NS: Final = 600 * 10**9
MAX_REQUESTS: Final = 10_000
"""`LONGEST_NS` and `MAX_REQUESTS` limit how much of an earlier process is read: the length of the
range, and the number of requests."""


class ReplicaProcess(NamedTuple):
    """A replica from a start of its engines until the next start."""

    replica: str
    from_unix_ns: int
    to_unix_ns: int
    configuration: str
    """Fingerprint of the engine's arguments, and the version of vLLM. Empty if the start is
    unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedBy:
    """Requests of one process."""

    requests: SideRequests
    rows: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class ComparedProcesses:
    """The processes of a comparison."""

    difference: float
    """The result of `process_effect.difference_of`."""
    kinds: Sequence[Sequence[ServedBy]]
    """The requests of each process. There is one list for each group of processes that are compared
    with each other."""


def processes_of(starts: Iterable[EngineStart], to_unix_ns: int) -> list[ReplicaProcess]:
    """The processes of each replica, in order of time. The last one ends at `to_unix_ns`. Pure.

    A process may report a start for each engine or API server. Two starts belong to the same
    process if the second engine began to load before the first was ready.
    """
    of_replica: dict[str, list[EngineStart]] = defaultdict(list)
    for start in sorted(starts, key=lambda each: each.at_unix_ns):
        mine = of_replica[start.replica]
        if not mine or loading_from(start) > mine[-1].at_unix_ns:
            mine.append(start)
    found = []
    for replica, mine in of_replica.items():
        ends = [*(loading_from(each) for each in mine[1:]), to_unix_ns]
        found += [
            ReplicaProcess(replica, each.at_unix_ns, end, f"{each.config} {each.version}")
            for each, end in zip(mine, ends, strict=True)
        ]
    return found


def read_processes(
    engine: Engine, question: CompareQuestion, sides: Sequence[Chosen]
) -> ComparedProcesses | None:
    """The processes of a comparison.

    Return None if the same processes served both sides, or if a side has no requests."""
    windows = question.before.window, question.after.window
    from_unix_ns = max(0, windows[0].from_unix_ns - LOOKBACK_NS)
    to_unix_ns = max(each.to_unix_ns for each in windows)
    starts = in_force(engine, from_unix_ns) + starts_between(engine, from_unix_ns + 1, to_unix_ns)
    known = processes_of(starts, to_unix_ns)
    served = [_served(each, known) for each in sides]
    if served[0].keys() == served[1].keys() or not all(served):
        return None
    before, after = ({each.replica for each in side} for side in served)
    kinds: dict[tuple[str, str, int], list[ServedBy]] = defaultdict(list)

    def kind_of(process: ReplicaProcess, side: int) -> tuple[str, str, int]:
        # A replica that served both sides keeps its hardware. So its processes are compared only
        # with each other.
        same = process.replica in before & after
        return process.configuration, process.replica if same else "", side

    for number, (side, by_process) in enumerate(zip(sides, served, strict=True)):
        largest = sorted(by_process, key=lambda each: -int(by_process[each].sum()))
        for process in largest[:MAX_PROCESSES]:
            if process.configuration:
                kinds[kind_of(process, number)].append(ServedBy(side.requests, by_process[process]))
    length_ns = min(LONGEST_NS, *(each.to_unix_ns - each.from_unix_ns for each in windows))
    for process in sorted(known, key=lambda each: -each.from_unix_ns):
        # Add an earlier process to the list of its configuration. If both sides have this
        # configuration, add it to the list before the change.
        others = kinds.get(kind_of(process, 0)) or kinds.get(kind_of(process, 1))
        if others is None or len(others) >= MAX_PROCESSES or any(process in by for by in served):
            continue
        if earlier := _first_requests(engine, process, length_ns, question):
            others.append(earlier)
    shares = [
        {process: float(rows.sum() / side.rows.sum()) for process, rows in by_process.items()}
        for side, by_process in zip(sides, served, strict=True)
    ]
    return ComparedProcesses(difference_of(*shares), list(kinds.values()))


def effect_of(
    found: ComparedProcesses, question: CompareQuestion, before: Chosen, criteria: Criteria
) -> ProcessEffect:
    """The effect of a restart on a percentile. Pure."""
    flat = [each for kind in found.kinds for each in kind]
    sides = [(before.requests.table, before.rows)]
    sides += [(each.requests.table, each.rows) for each in flat]
    numbers = group_numbers(
        [table for table, _ in sides], without=[*question.labels, *renamed(sides)]
    )
    observed = iter(
        [
            each.requests.observed(question.metric, groups, each.rows)[0]
            for each, groups in zip(flat, numbers[1:], strict=True)
        ]
    )
    return process_effect(
        before.requests.observed(question.metric, numbers[0], before.rows)[0],
        [[next(observed) for _ in kind] for kind in found.kinds],
        criteria,
        found.difference,
    )


def _served(side: Chosen, known: Sequence[ReplicaProcess]) -> dict[ReplicaProcess, BoolArray]:
    """Return which requests of one side each process served."""
    of_replica: dict[str, list[ReplicaProcess]] = defaultdict(list)
    for each in known:
        of_replica[each.replica].append(each)
    replica = pc.fill_null(side.requests.table["replica"].cast("string"), "")
    found = {}
    for name in pc.unique(replica).to_pylist():
        mine = side.rows & np.asarray(pc.equal(replica, name))
        processes = of_replica[name] or [ReplicaProcess(name, 0, 0, "")]
        begun_ns = [each.from_unix_ns for each in processes]
        place = np.searchsorted(begun_ns, side.requests.received_unix_ns, side="right") - 1
        for number, process in enumerate(processes):
            rows = mine & (np.maximum(place, 0) == number)
            if rows.any():
                found[process] = rows
    return found


def _first_requests(
    engine: Engine, process: ReplicaProcess, length_ns: int, question: CompareQuestion
) -> ServedBy | None:
    """The first requests of an earlier process, or None if the question selects none of them."""
    to_unix_ns = min(process.to_unix_ns, process.from_unix_ns + length_ns)
    if to_unix_ns <= process.from_unix_ns:
        return None
    table = request_table(
        engine,
        Window(process.from_unix_ns, to_unix_ns),
        equals={"replica": process.replica},
        columns=list(dict.fromkeys([*COLUMNS, *question.columns])),
        limit=MAX_REQUESTS,
    )
    rows = matching(table, question.shared_labels)
    return ServedBy(requests_of(table), rows) if rows.any() else None
