"""What each engine cost while it was heard of, and how much of that was idle.

The same rule as the bill's (`cost.seen`): between two samples at most GAP_S apart the engine
was there; a longer silence is neither billed nor idle, for nobody knows whether the machine was
rented then. Several processes may report one engine: its time is the union of theirs, and busy
the sum. Idle never goes back, though a long step is told only once it has ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from exporters.engines import AHEAD_NS, STALE_NS, EngineKey
from telemetry.accounts import GAP_S
from telemetry.engines import EngineSample

_GAP_NS: Final = GAP_S * 10**9
MOST_PROCESSES: Final = 64
"""Of one engine; of more, the one heard of first is forgotten."""


class EngineBill(NamedTuple):
    """Of one engine, since we listen. None is unknown."""

    model: str | None
    usd_per_s: float | None
    """Now; None once it is silent, too."""
    up_s: float
    idle_s: float | None
    usd: float | None
    idle_usd: float | None


class _Told(NamedTuple):
    """By one process, last."""

    at_unix_ns: int
    busy_s: float | None


@dataclass(slots=True)
class _Engine:
    newest_unix_ns: int
    model: str | None = None
    usd_per_s: float | None = None
    processes: dict[tuple[int, int], _Told] = field(default_factory=dict)
    """By process and its start."""
    up_s: float = 0.0
    spare_s: float = 0.0
    """Up less busy, which runs ahead during a step and falls back at its end."""
    idle_s: float | None = None
    usd: float | None = None
    spare_usd: float = 0.0
    idle_usd: float | None = None

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
    """Every engine heard of.

    Args:
        clock_unix_ns: the present.
        usd_per_s: what a second of a replica's engine costs; None where nobody knows.
    """

    def __init__(
        self,
        clock_unix_ns: Callable[[], int],
        usd_per_s: Callable[[str, int], float | None],
    ) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._usd_per_s = usd_per_s
        self._engines: dict[EngineKey, _Engine] = {}

    def add(self, sample: EngineSample) -> None:
        """Take a sample; one older than what its process told changes nothing."""
        key = sample.replica, sample.engine
        at, process = sample.at_unix_ns, (sample.process, sample.started_unix_ns)
        engine = self._engines.get(key)
        if engine is None:
            # What it did before its first sample is ours if it started just then.
            engine = self._engines[key] = _Engine(min(sample.started_unix_ns, at))
        told = engine.processes.get(process)
        latest_unix_ns = self._clock_unix_ns() + AHEAD_NS
        if told is not None and at <= told.at_unix_ns <= latest_unix_ns:
            return
        if engine.newest_unix_ns > latest_unix_ns:
            engine.newest_unix_ns = at
        engine.model = sample.model or engine.model
        engine.usd_per_s = self._usd_per_s(*key)
        silence_ns = at - engine.newest_unix_ns
        up_s = silence_ns / 1e9 if 0 < silence_ns <= _GAP_NS else 0.0
        before = told or _Told(sample.started_unix_ns, 0.0)
        engine.spend(up_s, _grown(before, at, sample.busy_s_total))
        engine.newest_unix_ns = max(engine.newest_unix_ns, at)
        if told is None and len(engine.processes) >= MOST_PROCESSES:
            del engine.processes[next(iter(engine.processes))]
        busy_s = sample.busy_s_total
        engine.processes[process] = _Told(
            at, busy_s if busy_s is not None or told is None else told.busy_s
        )

    def forget(self, keys: set[EngineKey]) -> None:
        """Drop engines that have no room any more."""
        for key in keys:
            self._engines.pop(key, None)

    @property
    def keys(self) -> set[EngineKey]:
        """The engines heard of."""
        return set(self._engines)

    def view(self) -> dict[EngineKey, EngineBill]:
        """All engines as of now."""
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


def _grown(before: _Told, at_unix_ns: int, busy_s: float | None) -> float | None:
    """Busy seconds since a process told last; None where it does not tell."""
    if busy_s is None:
        return None
    if before.busy_s is None or not 0 <= at_unix_ns - before.at_unix_ns <= _GAP_NS:
        return 0.0
    return max(0.0, busy_s - before.busy_s)
