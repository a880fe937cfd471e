"""Which replica a process of this machine belongs to: by its ancestors and by what engines told.

Pure. A process id alone says little: another machine has the same, and every container has a 1.
So when a process began must agree with since when the engine counts, and where a replica is
named after a host (`host:port`, as it is unless somebody names it) it must be this one, or that
of the process' container.

With one API server the engine's workers descend from it, and it tells. With several, or with data
parallelism, servers and engines are sisters: children of one launcher of the same program, begun
together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from collector.gpus.processes import Process

BEFORE_S: Final = 5.0
AFTER_S: Final = 3_600.0
"""An engine begins to count once its model is loaded, or begins to be."""
TOGETHER_S: Final = 120.0
"""A launcher starts its servers and engines one after another."""


class Known(NamedTuple):
    """A process that an engine's telemetry named.

    Attributes:
        started_unix_ns: since when it counts; None where it has counted nothing.
    """

    replica: str
    process: int
    started_unix_ns: int | None


def by_process(known: Iterable[Known]) -> Mapping[int, Sequence[Known]]:
    """What engines told, by the process id."""
    found: dict[int, list[Known]] = {}
    for each in known:
        found.setdefault(each.process, []).append(each)
    return found


def replica_of(
    ancestry: Iterable[Process],
    known: Mapping[int, Sequence[Known]],
    here: str,
    hostname: Callable[[int], str | None],
    children: Callable[[int], Iterable[Process]] = lambda _pid: (),
) -> str | None:
    """The replica that a process serves; None where none is sure.

    Args:
        ancestry: the process, its parent, and so on.
        known: what engines told, by process id.
        here: this machine's name.
        hostname: what a process' container is called.
        children: those of a process.
    """
    branch: Process | None = None
    for process in ancestry:
        meant = [process]
        if branch is not None and process.program == branch.program is not None:
            meant += [each for each in children(process.pid) if _sisters(each, branch)]
        for each in meant:
            host = hostname(each.pid) if each.contained else here
            found = _sure(_candidates(each, known), host)
            if found is not None:
                return found
        branch = process
    return None


def server_of(
    ancestry: Iterable[Process],
    here: str,
    hostname: Callable[[int], str | None],
    port: Callable[[int], int | None],
) -> str | None:
    """What the server that a process works for is called unless somebody named it: host:port.

    The nearest ancestor that runs the same program and listens is the server: its workers on GPUs
    talk to each other over ports of their own, and what started it runs something else.

    Args:
        ancestry: the process, its parent, and so on.
        here: this machine's name.
        hostname: what a process' container is called.
        port: the one port that a process listens on.
    """
    line = list(ancestry)
    for process in line[1:]:
        if process.program is None or process.program != line[0].program:
            return None
        if (listens_on := port(process.pid)) is not None:
            host = hostname(process.pid) if process.contained else here
            return f"{host}:{listens_on}" if host else None
    return None


def _candidates(process: Process, known: Mapping[int, Sequence[Known]]) -> set[str]:
    told = known.get(process.own_pid, ())
    return {each.replica for each in told if _began_together(each, process)}


def _sisters(one: Process, other: Process) -> bool:
    if one.program != other.program or one.started_unix_s is None or other.started_unix_s is None:
        return False
    return abs(one.started_unix_s - other.started_unix_s) <= TOGETHER_S


def _began_together(known: Known, process: Process) -> bool:
    if known.started_unix_ns is None or process.started_unix_s is None:
        return True
    later_s = known.started_unix_ns / 1e9 - process.started_unix_s
    return -BEFORE_S <= later_s <= AFTER_S


def _sure(candidates: set[str], host: str | None) -> str | None:
    of_host = {each for each in candidates if host is not None and host in (each, host_of(each))}
    if len(of_host) == 1:
        return next(iter(of_host))
    # A name that somebody chose does not say where its server is.
    chosen = {each for each in candidates if host_of(each) is None}
    return next(iter(chosen)) if len(chosen) == 1 and not of_host else None


def host_of(replica: str) -> str | None:
    """The host in a replica's name of the form `host:port`; None of a name of another form."""
    host, _, port = replica.rpartition(":")
    return host if host and port.isascii() and port.isdigit() else None
