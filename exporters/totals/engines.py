"""Totals and gauges of engines, summed over the processes that report one engine.

Each of vLLM's API servers reports totals of its own requests. Only one process reports the totals
of the steps. If a process reports a new start, and no other process of the engine sent a sample
shortly before, the server has restarted. The old counts are then dropped, which Prometheus treats
as a counter reset. If a process ends while others continue, its counts stay in the sum. After
Tailspan starts, the totals of a running engine are omitted until each of its processes has had time
to reconnect.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from tailspan_vllm.export.retry import JITTER, LONGEST_PAUSE_S

from exporters.definitions.engine_series import COMMON_TOTALS, ENGINE_GAUGES, ENGINE_TOTALS
from telemetry.engines import EngineSample
from telemetry.requests import Source

STALE_NS: Final = 60 * 10**9
GONE_NS: Final = 10 * 10**9
"""A process counts as ended if it sent no sample for this long before a new process started. A
restart takes longer than this, because it loads a model."""
AHEAD_NS: Final = 600 * 10**9
"""A sample that is further in the future than this was added while Tailspan's clock was ahead. The
next sample replaces it."""
JOINING_NS: Final = round(LONGEST_PAUSE_S * (1 + JITTER) * 1e9)
"""After a start of Tailspan, all processes of an engine reconnect within this time, which is the
longest pause between two attempts. Until then, the sum over the processes may be too low."""
MAX_PROCESSES: Final = 64
"""Maximum number of processes of one engine. If there are more, a new process replaces the process
whose last sample is oldest."""

_OVER_PROCESSES: Final[Mapping[str, Callable[[float, float], float]]] = {
    "longest_step_s": max,
    "in_flight": operator.add,
    "oldest_request_age_s": max,
    "last_step_age_s": min,
}
"""How to combine the gauges of an engine's processes. All other gauges are taken from the newest
sample."""

_TOTALS: Final = attrgetter(*ENGINE_TOTALS)
_NO_TOTALS: Final = (None,) * len(ENGINE_TOTALS)

EngineKey = tuple[str, int]
"""Replica and engine."""


class EngineView(NamedTuple):
    """The last values of one engine."""

    model: str | None
    gauges: dict[str, float]
    totals: dict[str, float]
    last_sample_unix_ns: int
    info: tuple[str, str, str]


@dataclass(slots=True)
class _Process:
    newest: EngineSample
    last_seen_unix_ns: int
    """The newest sample's timestamp or arrival, whichever is earlier."""
    started_unix_ns: int | None = None
    highest: list[float | None] = field(default_factory=lambda: [None] * len(ENGINE_TOTALS))
    """The highest value of each total, in the order of `ENGINE_TOTALS`."""

    @property
    def totals(self) -> dict[str, float]:
        known = zip(ENGINE_TOTALS, self.highest, strict=True)
        return {name: value for name, value in known if value is not None}

    def take(self, sample: EngineSample, last_seen_unix_ns: int) -> None:
        self.newest = sample
        self.last_seen_unix_ns = last_seen_unix_ns
        values: tuple[float | None, ...] = _TOTALS(sample)
        if values != _NO_TOTALS:
            self.started_unix_ns = sample.started_unix_ns
        self.highest = [
            value if before is None or (value is not None and value > before) else before
            for value, before in zip(values, self.highest, strict=True)
        ]


@dataclass(slots=True)
class _Engine:
    model: str | None = None
    processes: dict[int, _Process] = field(default_factory=dict)
    settled: dict[str, float] = field(default_factory=dict)
    """Sum of the totals of processes that ended while others continued."""
    joining_since_unix_ns: int | None = None
    """Arrival of the first sample, if the engine started before this exporter."""

    def settle(self, process: int) -> None:
        for name, value in self.processes.pop(process).totals.items():
            if name not in COMMON_TOTALS:
                self.settled[name] = self.settled.get(name, 0) + value


class EngineTotals:
    """The totals of all engines."""

    def __init__(self, clock_unix_ns: Callable[[], int]) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._created_unix_ns = clock_unix_ns()
        self._engines: dict[EngineKey, _Engine] = {}

    def add(self, sample: EngineSample) -> None:
        """Add a sample, unless it is older than the latest sample."""
        engine = self._engines.setdefault((sample.replica, sample.engine), _Engine())
        known = engine.processes.get(sample.process)
        now_unix_ns = self._clock_unix_ns()
        if known is not None:
            start_unix_ns = known.started_unix_ns if _counts(sample) else None
            is_older = start_unix_ns is not None and sample.started_unix_ns < start_unix_ns
            # A process with an older start usually belongs to an older server with the same name
            # that still runs. But if the newer server has been silent for a minute, the server has
            # restarted after its clock was set back.
            silence_ns = STALE_NS if is_older else 0
            latest_unix_ns = now_unix_ns + AHEAD_NS
            if sample.at_unix_ns - silence_ns <= known.newest.at_unix_ns <= latest_unix_ns:
                return
            if start_unix_ns not in (None, sample.started_unix_ns):
                known = None
        last_seen_unix_ns = min(sample.at_unix_ns, now_unix_ns)
        if known is None:
            self._begin(engine, sample)
            known = engine.processes[sample.process] = _Process(sample, last_seen_unix_ns)
        known.take(sample, last_seen_unix_ns)
        engine.model = sample.model or engine.model

    def forget(self, keys: set[EngineKey]) -> None:
        """Remove engines that are no longer within the limit."""
        for key in keys:
            del self._engines[key]

    @property
    def keys(self) -> set[EngineKey]:
        """The engines that have sent samples."""
        return set(self._engines)

    def view(self) -> dict[EngineKey, EngineView]:
        """All engines with their current values. An engine without recent samples has no gauges."""
        now_unix_ns = self._clock_unix_ns()
        return {key: _view(engine, now_unix_ns) for key, engine in self._engines.items()}

    def _begin(self, engine: _Engine, sample: EngineSample) -> None:
        latest_unix_ns = self._clock_unix_ns() + AHEAD_NS
        others = [
            each
            for process, each in engine.processes.items()
            # If the newest sample is in the future, it is from a process that ended before the
            # clock was set back.
            if process != sample.process and each.newest.at_unix_ns <= latest_unix_ns
        ]
        if all(each.newest.at_unix_ns + GONE_NS < sample.started_unix_ns for each in others):
            engine.processes.clear()
            engine.settled.clear()
            # A scrape contains the totals of all processes of a server.
            is_partial = sample.started_unix_ns < self._created_unix_ns and (
                sample.source is not Source.SCRAPE
            )
            engine.joining_since_unix_ns = self._clock_unix_ns() if is_partial else None
            return
        if sample.process in engine.processes:
            engine.settle(sample.process)
        elif len(engine.processes) >= MAX_PROCESSES:
            engine.settle(
                min(engine.processes, key=lambda each: engine.processes[each].last_seen_unix_ns)
            )


def _counts(sample: EngineSample) -> bool:
    return bool(_TOTALS(sample) != _NO_TOTALS)


def _view(engine: _Engine, now_unix_ns: int) -> EngineView:
    newest = max((each.newest for each in engine.processes.values()), key=lambda s: s.at_unix_ns)
    return EngineView(
        engine.model,
        _gauges(engine, now_unix_ns),
        _totals(engine, now_unix_ns),
        newest.at_unix_ns,
        (newest.region or "", newest.config or "", str(newest.source or "")),
    )


def _totals(engine: _Engine, now_unix_ns: int) -> dict[str, float]:
    since_unix_ns = engine.joining_since_unix_ns
    if since_unix_ns is not None and 0 <= now_unix_ns - since_unix_ns < JOINING_NS:
        return {}  # Prometheus would interpret a sum of some processes as a reset
    totals = dict(engine.settled)
    for each in engine.processes.values():
        for name, value in each.totals.items():
            total = totals.get(name, 0)
            totals[name] = max(total, value) if name in COMMON_TOTALS else total + value
    return totals


def _gauges(engine: _Engine, now_unix_ns: int) -> dict[str, float]:
    gauges: dict[str, float] = {}
    fresh = [
        each.newest
        for each in engine.processes.values()
        if abs(now_unix_ns - each.last_seen_unix_ns) <= STALE_NS
    ]
    for sample in sorted(fresh, key=lambda sample: sample.at_unix_ns):
        for name in ENGINE_GAUGES:
            value: float | None = getattr(sample, name)
            if value is None:
                continue
            combine = _OVER_PROCESSES.get(name)
            if combine is not None and name in gauges:
                value = combine(gauges[name], value)
            gauges[name] = value
    return gauges
