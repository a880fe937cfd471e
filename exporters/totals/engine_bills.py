"""The cost of each engine while it was up, and the cost of its idle time.

An engine was up between two samples at most GAP_S apart (`cost.uptime`). Only one process of an
engine sends the engine's step totals, and only this process is counted as uptime, not the API
servers. If two processes send step totals at the same time, two servers use the same replica name
by mistake. Both servers are then billed. Idle time is uptime minus busy time. It can decrease,
because the busy time of a step arrives at the end of the step. A counter must not decrease, so the
highest idle time so far is exported.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from exporters.totals.engines import AHEAD_NS, STALE_NS, EngineKey
from telemetry.billing_data import GAP_S
from telemetry.engines import EngineSample

_GAP_NS: Final = GAP_S * 10**9
MAX_PROCESSES: Final = 64
"""Maximum number of processes of one engine. If there are more, a new process replaces the process
that reported first."""


class EngineBill(NamedTuple):
    """The bill of one engine since this exporter started."""

    model: str | None
    usd_per_s: float | None
    """The price per second. None if it is unknown or the engine sends no samples."""
    up_s: float
    idle_s: float | None
    usd: float | None
    idle_usd: float | None


class _Report(NamedTuple):
    at_unix_ns: int
    busy_s: float | None
    first_unix_ns: int = 0
    server: int = 0
    """Index of the process's server. It is 0 unless several servers share the engine's name."""

    @property
    def counts_steps(self) -> bool:
        return self.busy_s is not None


_Process = tuple[int, int]
"""Process id and start."""


@dataclass(slots=True)
class _Server:
    newest_unix_ns: int
    last: _Process | None = None


@dataclass(slots=True)
class _Engine:
    servers: list[_Server]
    model: str | None = None
    usd_per_s: float | None = None
    processes: dict[_Process, _Report] = field(default_factory=dict)
    up_s: float = 0.0
    spare_s: float = 0.0
    """Uptime minus busy time. It decreases when the busy time of a step is reported, which happens
    at the end of the step."""
    idle_s: float | None = None
    usd: float | None = None
    spare_usd: float = 0.0
    idle_usd: float | None = None

    @property
    def newest_unix_ns(self) -> int:
        return max(each.newest_unix_ns for each in self.servers)

    def advance(self, process: _Process, report: _Report) -> tuple[float, int]:
        """The uptime in seconds that a sample adds, and the index of the process's server.

        A process may still send step totals after its successor has started. Then it counts as a
        separate server since its previous sample.
        """
        number = report.server
        before = self.processes.get(process)
        rival = self.servers[number].last
        if before is not None and rival is not None and rival != process:
            comparable = report.counts_steps or rival[0] == process[0]
            if comparable and report.at_unix_ns > self.processes[rival].first_unix_ns:
                number = self._free(report.at_unix_ns, before.at_unix_ns)
        server = self.servers[number]
        silence_ns = report.at_unix_ns - server.newest_unix_ns
        server.newest_unix_ns = max(server.newest_unix_ns, report.at_unix_ns)
        if report.counts_steps or server.last is None or server.last[0] == process[0]:
            server.last = process
        return (silence_ns / 1e9 if 0 < silence_ns <= _GAP_NS else 0.0), number

    def _free(self, at_unix_ns: int, newest_unix_ns: int) -> int:
        for number, server in enumerate(self.servers):
            if at_unix_ns - server.newest_unix_ns > _GAP_NS:
                self.servers[number] = _Server(newest_unix_ns)
                return number
        if len(self.servers) >= MAX_PROCESSES:  # senders may invent ids
            return min(range(len(self.servers)), key=lambda at: self.servers[at].newest_unix_ns)
        self.servers.append(_Server(newest_unix_ns))
        return len(self.servers) - 1

    def forget(self, process: _Process) -> None:
        del self.processes[process]
        for server in self.servers:
            server.last = None if server.last == process else server.last

    def spend(self, up_s: float, busy_s: float | None) -> None:
        self.up_s += up_s
        if self.usd_per_s is not None:
            self.usd = (self.usd or 0.0) + up_s * self.usd_per_s
        if busy_s is None and self.idle_s is None:
            return
        spare_s = up_s - (busy_s or 0.0)
        self.spare_s += spare_s
        self.idle_s = max(self.idle_s or 0.0, self.spare_s)
        if self.usd_per_s is not None:
            self.spare_usd += spare_s * self.usd_per_s
            self.idle_usd = max(self.idle_usd or 0.0, self.spare_usd)


class EngineBills:
    """The bills of all engines."""

    def __init__(
        self,
        clock_unix_ns: Callable[[], int],
        usd_per_s: Callable[[str, int], float | None],
    ) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._usd_per_s = usd_per_s
        self._engines: dict[EngineKey, _Engine] = {}

    def add(self, sample: EngineSample) -> None:
        """Add a sample, unless it is older than the latest sample of its process."""
        key = sample.replica, sample.engine
        at, process = sample.at_unix_ns, (sample.process, sample.started_unix_ns)
        engine = self._engines.get(key)
        if engine is None:
            # The time from the start to the first sample is also billed if it is at most GAP_S.
            engine = self._engines[key] = _Engine([_Server(min(sample.started_unix_ns, at))])
        report = engine.processes.get(process)
        latest_unix_ns = self._clock_unix_ns() + AHEAD_NS
        if report is not None and at <= report.at_unix_ns <= latest_unix_ns:
            return
        for each in engine.servers:
            if each.newest_unix_ns > latest_unix_ns:
                each.newest_unix_ns = at
        engine.model = sample.model or engine.model
        engine.usd_per_s = self._usd_per_s(*key)
        before = report or _Report(sample.started_unix_ns, 0.0, at)
        busy_s = sample.busy_s_total
        known_s = busy_s if busy_s is not None or report is None else report.busy_s
        now = _Report(at, known_s, before.first_unix_ns, before.server)
        up_s, server = engine.advance(process, now)
        engine.spend(up_s, _busy_since_last_sample(before, at, busy_s))
        if report is None and len(engine.processes) >= MAX_PROCESSES:
            engine.forget(next(iter(engine.processes)))
        engine.processes[process] = now if now.server == server else now._replace(server=server)

    def forget(self, keys: set[EngineKey]) -> None:
        """Remove engines that are no longer within the limit."""
        for key in keys:
            self._engines.pop(key, None)

    @property
    def keys(self) -> set[EngineKey]:
        """The engines that have sent samples."""
        return set(self._engines)

    def view(self) -> dict[EngineKey, EngineBill]:
        """The current bills of all engines."""
        now_unix_ns = self._clock_unix_ns()
        return {
            key: EngineBill(
                each.model,
                each.usd_per_s if now_unix_ns - each.newest_unix_ns <= STALE_NS else None,
                each.up_s,
                each.idle_s,
                each.usd,
                each.idle_usd,
            )
            for key, each in self._engines.items()
        }


def _busy_since_last_sample(before: _Report, at_unix_ns: int, busy_s: float | None) -> float | None:
    """The busy seconds since the process's previous sample, or None if they were not reported."""
    if busy_s is None:
        return None
    if before.busy_s is None or not 0 <= at_unix_ns - before.at_unix_ns <= _GAP_NS:
        return 0.0
    return max(0.0, busy_s - before.busy_s)
