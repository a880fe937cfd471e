"""Find the replica to which a process of this machine belongs. Pure.

Processes on other machines or in containers can have the same process id. So a match also requires
that the process and the engine's counters started at about the same time. If the replica has the
default name `host:port`, the host must be this machine or the process's container.

An engine reports one process id, and its worker processes descend from this process. With several
API servers or data parallelism, a launcher starts the servers and the workers at about the same
time. The launcher, the servers and the workers run the same program.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from collector.gpus.processes import HostProcess

BEFORE_S: Final = 5.0
AFTER_S: Final = 3_600.0
"""An engine's counters may start up to `BEFORE_S` before the engine's process, and up to `AFTER_S`
after it. Some counters start only after the model is loaded."""
TOGETHER_S: Final = 120.0
"""Maximum time between the starts of two children of one launcher."""


class EngineProcess(NamedTuple):
    """A process whose id an engine reported."""

    replica: str
    process: int
    started_unix_ns: int | None


def by_process(engines: Iterable[EngineProcess]) -> Mapping[int, Sequence[EngineProcess]]:
    """Map each process id to the engines that reported it."""
    found: dict[int, list[EngineProcess]] = {}
    for each in engines:
        found.setdefault(each.process, []).append(each)
    return found


def replica_of(
    ancestry: Iterable[HostProcess],
    engines: Mapping[int, Sequence[EngineProcess]],
    here: str,
    hostname: Callable[[int], str | None],
    children: Callable[[int], Iterable[HostProcess]] = lambda _pid: (),
    clock_step_s: float = 0.0,
) -> str | None:
    """The replica of a process, or None if it is uncertain.

    Args:
        ancestry: the process, its parent, and so on.
        engines: maps process ids to the processes that engines reported.
        here: this machine's host name.
        hostname: returns the host name of the container of a process.
        clock_step_s: seconds by which the system clock was set forward since the boot time was
            read. An engine that started after the change reports its start on the changed clock.
    """
    branch: HostProcess | None = None
    for process in ancestry:
        related = [process]
        if branch is not None and process.program == branch.program is not None:
            related += [each for each in children(process.pid) if _siblings(each, branch)]
        for each in related:
            host = hostname(each.pid) if each.contained else here
            found = _only_candidate(_candidates(each, engines, clock_step_s), host)
            if found is not None:
                return found
        branch = process
    return None


def server_of(
    ancestry: Iterable[HostProcess],
    here: str,
    hostname: Callable[[int], str | None],
    port: Callable[[int], int | None],
) -> str | None:
    """The default name (host:port) of the server to which a process belongs. The server is the
    nearest ancestor that runs the same program and listens on exactly one port.

    Args:
        port: returns the only port that a process listens on, or None.
    """
    line = list(ancestry)
    for process in line[1:]:
        if process.program is None or process.program != line[0].program:
            return None
        if (listens_on := port(process.pid)) is not None:
            host = hostname(process.pid) if process.contained else here
            return f"{host}:{listens_on}" if host else None
    return None


def _candidates(
    process: HostProcess, engines: Mapping[int, Sequence[EngineProcess]], clock_step_s: float
) -> set[str]:
    same_pid = engines.get(process.own_pid, ())
    return {each.replica for each in same_pid if _started_together(each, process, clock_step_s)}


def _siblings(one: HostProcess, other: HostProcess) -> bool:
    if one.program != other.program or one.started_unix_s is None or other.started_unix_s is None:
        return False
    return abs(one.started_unix_s - other.started_unix_s) <= TOGETHER_S


def _started_together(engine: EngineProcess, process: HostProcess, clock_step_s: float) -> bool:
    if engine.started_unix_ns is None or process.started_unix_s is None:
        return True
    later_s = engine.started_unix_ns / 1e9 - process.started_unix_s
    return any(-BEFORE_S <= later_s - step_s <= AFTER_S for step_s in (0.0, clock_step_s))


def _only_candidate(candidates: set[str], host: str | None) -> str | None:
    of_host = {each for each in candidates if host is not None and host in (each, host_of(each))}
    if len(of_host) == 1:
        return next(iter(of_host))
    # A replica name that the user configured need not contain a host.
    chosen = {each for each in candidates if host_of(each) is None}
    return next(iter(chosen)) if len(chosen) == 1 and not of_host else None


def host_of(replica: str) -> str | None:
    """The host of a replica name of the form `host:port`, or None if the name has a different
    form."""
    host, _, port = replica.rpartition(":")
    return host if host and port.isascii() and port.isdigit() else None
