"""Find the processes that send samples of an engine, and servers that share a name.

One process of each engine sends the totals of the engine's steps. If two processes send them at the
same time, two servers have the same `service.instance.id`. In containers, such servers may differ
only in their start times.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

from sqlalchemy import Engine, func, select

from store.connections import reading
from store.rollups.marks import SECOND_NS
from store.schema import SAMPLES
from telemetry.billing_data import GAP_S
from telemetry.window import Window

MAX_PROCESSES: Final = 64
"""Maximum number of processes per engine that are compared in pairs."""


class SenderProcess(NamedTuple):
    """One process that sent samples of an engine in a window."""

    process: int
    started_unix_ns: int
    first_unix_ns: int
    last_unix_ns: int
    counts_steps: bool


class SharedName(NamedTuple):
    """A replica name and engine number that several servers use at the same time."""

    replica: str
    engine: int
    servers: Sequence[SenderProcess]


class SenderNames(NamedTuple):
    """The number of engines that sent samples, and the names that servers share."""

    engines: int
    shared: Sequence[SharedName]


def names(engine: Engine, window: Window) -> SenderNames:
    """Count the engines that sent samples in a window, and find names that servers share.

    An overlap of up to GAP_S is allowed, because a new server may replace an old server.
    """
    at = SAMPLES.c.at_unix_ns
    key = (SAMPLES.c.replica, SAMPLES.c.engine, SAMPLES.c.process, SAMPLES.c.started_unix_ns)
    statement = (
        select(*key, func.min(at), func.max(at), func.count(SAMPLES.c.busy_s_total))
        .where(at >= window.from_unix_ns, at < window.to_unix_ns)
        .group_by(*key)
    )
    found: dict[tuple[str, int], list[SenderProcess]] = defaultdict(list)
    with reading(engine) as connection:
        for replica, number, process, started, first, last, counted in connection.execute(
            statement
        ):
            found[replica, number].append(SenderProcess(process, started, first, last, counted > 0))
    shared = [
        SharedName(*which, servers)
        for which, processes in sorted(found.items())
        if (servers := _at_once(processes))
    ]
    return SenderNames(len(found), shared)


def _at_once(processes: Sequence[SenderProcess]) -> list[SenderProcess]:
    lasting = sorted(processes, key=lambda each: each.first_unix_ns - each.last_unix_ns)
    clashing = set()
    for one, other in combinations(lasting[:MAX_PROCESSES], 2):
        comparable = one.process == other.process or (one.counts_steps and other.counts_steps)
        together_ns = min(one.last_unix_ns, other.last_unix_ns) - max(
            one.first_unix_ns, other.first_unix_ns
        )
        if comparable and together_ns > GAP_S * SECOND_NS:
            clashing |= {one, other}
    return sorted(clashing, key=lambda each: each.started_unix_ns)
