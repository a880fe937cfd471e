"""Drop repeated engine starts, and refuse more starts than real engines can cause.

A stored start describes the engine as long as it runs, so starts are not deleted by age. Instead,
their number is limited per replica and in total, by token buckets: a burst of starts is allowed,
and then one more start after each refill time.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, fields
from typing import Final

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from telemetry.starts import EngineStart

REPLICA_BURST: Final = 256
"""Maximum number of starts that one replica may report in a burst. Each API server reports the
start of each engine, so 16 API servers report 16 starts each."""
REPLICA_REFILL_NS: Final = 10 * 10**9
"""Time after which a replica may report one more start. No server restarts and loads a model in
less time."""
ALL_BURST: Final = 4_096
"""Maximum number of starts that all replicas together may report in a burst. It allows four starts
for each of 1,000 engines."""
ALL_REFILL_NS: Final = 5 * 10**9
"""Time after which one more start of any replica is allowed. It allows 1,000 engines in 90
minutes."""
MAX_REPLICAS: Final = 1_000
"""Maximum number of stored replicas. A new replica replaces the replica that has been silent
longest."""
MAX_REMEMBERED: Final = 2 * REPLICA_BURST
"""Maximum number of stored starts per replica. The last start of each engine and process is
stored."""

_COMPARED: Final = tuple(
    each.name for each in fields(EngineStart) if each.name not in ("at_unix_ns", "clock_ahead_s")
)


@dataclass(slots=True)
class EngineStartAllowance:
    """A token bucket: allows a burst of `burst` engine starts, and then one more per
    `refill_ns`."""

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
    """Maps an engine and process to the timestamp of its last start, and to a hash of the start's
    other values."""


class EngineStartLimits:
    """Removes an engine start that exceeds a limit or repeats the last start too soon."""

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
                    f"at most {REPLICA_BURST} starts of a replica in a burst, then one per"
                    f" {REPLICA_REFILL_NS // 10**9} s; at most {ALL_BURST} starts of all replicas"
                    f" in a burst, then one per {ALL_REFILL_NS // 10**9} s"
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
