"""Drops repeated engine starts, and refuses more starts than real engines can cause.

A start is valid while its engine runs, so it is not deleted by age, but limited per replica and in
total: a burst, then one more after a fixed time.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, fields
from typing import Final

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from telemetry.starts import EngineStart

REPLICA_BURST: Final = 256
"""Each API server reports the start of each engine: 16 API servers × 16 engines."""
REPLICA_REFILL_NS: Final = 10 * 10**9
"""No server restarts and loads a model in less time (see also
`exporters.totals.engines.GONE_NS`)."""
ALL_BURST: Final = 4_096
"""Of all replicas: four for each of 1,000 engines."""
ALL_REFILL_NS: Final = 5 * 10**9
"""Of all replicas: 1,000 engines in 90 minutes."""
MAX_REPLICAS: Final = 1_000
"""Maximum stored replicas. A new one replaces the one that was silent longest."""
MAX_REMEMBERED: Final = 2 * REPLICA_BURST
"""Maximum stored starts per replica: the last of each engine and process."""

_COMPARED: Final = tuple(
    each.name for each in fields(EngineStart) if each.name not in ("at_unix_ns", "clock_ahead_s")
)


@dataclass(slots=True)
class EngineStartAllowance:
    """Allows `burst` engine starts at once, and one more per `refill_ns`."""

    burst: int
    refill_ns: int
    left: int = field(init=False)
    _refilled_ns: int | None = None

    def __post_init__(self) -> None:
        self.left = self.burst

    def has(self, now_ns: int) -> bool:
        """Whether one more start is allowed now. The caller must then reduce `left` by one."""
        if self._refilled_ns is None or now_ns < self._refilled_ns:
            self._refilled_ns = now_ns
        earned = (now_ns - self._refilled_ns) // self.refill_ns
        self._refilled_ns += earned * self.refill_ns
        self.left = min(self.burst, self.left + earned)
        return self.left > 0


@dataclass(slots=True)
class _Replica:
    allowance: EngineStartAllowance = field(
        default_factory=lambda: EngineStartAllowance(REPLICA_BURST, REPLICA_REFILL_NS)
    )
    last: OrderedDict[tuple[int, int], tuple[int, int]] = field(default_factory=OrderedDict)
    """By engine and process: the last start's timestamp, and a hash of its other values."""


class EngineStartLimits:
    """Removes an engine start that repeats the last one too soon or exceeds a limit."""

    def __init__(self) -> None:
        self._all = EngineStartAllowance(ALL_BURST, ALL_REFILL_NS)
        self._replicas: OrderedDict[str, _Replica] = OrderedDict()

    def __call__(self, batch: NormalisedBatch, arrived_unix_ns: int) -> None:
        """Remove repeated starts, and starts beyond the limits."""
        kept = []
        for start in batch.starts:
            replica = self._replica(start.replica)
            process, content = (start.engine, start.process), _content_hash(start)
            last_unix_ns, last_content = replica.last.get(process, (0, 0))
            if content == last_content and start.at_unix_ns == last_unix_ns:
                kept.append(start)  # a retry
                continue
            if content == last_content and abs(start.at_unix_ns - last_unix_ns) < REPLICA_REFILL_NS:
                continue  # too soon after the last start
            if not (self._all.has(arrived_unix_ns) and replica.allowance.has(arrived_unix_ns)):
                batch.accepted -= 1
                batch.refused[Refusal.TOO_MANY_STARTS] += 1
                batch.why[Refusal.TOO_MANY_STARTS] = (
                    f"at most {REPLICA_BURST} starts of a replica at once, then one per"
                    f" {REPLICA_REFILL_NS // 10**9} s; at most {ALL_BURST} starts of all replicas"
                    f" at once, then one per {ALL_REFILL_NS // 10**9} s"
                )
                continue
            self._all.left -= 1
            replica.allowance.left -= 1
            replica.last[process] = start.at_unix_ns, content
            replica.last.move_to_end(process)
            if len(replica.last) > MAX_REMEMBERED:
                replica.last.popitem(last=False)
            kept.append(start)
        batch.starts = kept

    def _replica(self, name: str) -> _Replica:
        replica = self._replicas.pop(name, None) or _Replica()
        self._replicas[name] = replica
        if len(self._replicas) > MAX_REPLICAS:
            self._replicas.popitem(last=False)
        return replica


def _content_hash(start: EngineStart) -> int:
    return hash(tuple(getattr(start, name) for name in _COMPARED))
