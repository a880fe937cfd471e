"""Defines the state of one engine: gauges, running totals, configuration, hardware."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.hardware import UNKNOWN, Machine

Number = int | float


def _nothing() -> None:
    pass


@dataclass(slots=True)
class EngineState:
    """Values by metric names in `names.py`."""

    engine: int
    started_unix_ns: int
    model: str | None = None
    config: str | None = None
    gauges: dict[str, Number] = field(default_factory=dict)
    """Each reading replaces this dictionary, because unfinished requests refer to it."""
    totals: dict[str, Number] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """Number of failures of each hook in the engine core's process."""
    drops: dict[str, int] = field(default_factory=dict)

    load: Any = None
    """vLLM's latest `SchedulerStats`, which `step_statistics.load_of` converts."""
    shared: bool = False
    """Whether the server has other API servers. vLLM sends the statistics of each step to only one
    of them, so `load` may be old."""
    catch_up: Callable[[], None] = _nothing
    version: str | None = None
    arguments: dict[str, Scalar] = field(default_factory=dict)
    machine: Machine = UNKNOWN

    def load_at_arrival(self) -> Any:
        """The newest known load, for `step_statistics.load_of`."""
        return self.load if self.load and not self.shared else self.gauges

    def add(self, name: str, amount: Number) -> None:
        """Add to a running total, which begins at zero."""
        self.totals[name] = self.totals.get(name, 0) + amount

    def snapshot(
        self,
        own_totals: Mapping[str, Number],
        hook_failures: Mapping[str, int],
        drops: Mapping[str, int] | None = None,
    ) -> "EngineState":
        """A copy that later steps do not change.

        Args:
            hook_failures: maps each hook to its number of failures in this process.
            drops: maps each reason to the number of requests that are not reported.
        """
        return replace(
            self,
            load=None,
            catch_up=_nothing,
            gauges=dict(self.gauges),
            totals={**self.totals, **own_totals},
            failures=_sum(hook_failures, self.failures),
            drops=dict(drops or {}),
        )

    def since(self, before: "EngineState", started_unix_ns: int) -> "EngineState":
        """A copy of a snapshot that counts from an earlier snapshot, `before`."""
        return replace(
            self,
            started_unix_ns=started_unix_ns,
            totals={name: now - before.totals.get(name, 0) for name, now in self.totals.items()},
            failures=dict(Counter(self.failures) - Counter(before.failures)),
            drops=dict(Counter(self.drops) - Counter(before.drops)),
        )


def _sum(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    # There are usually no failures, and a `Counter` takes a third of a sample's time.
    return dict(Counter(some) + Counter(others)) if some and others else {**some, **others}


class EngineStateSample(NamedTuple):
    """The state of one engine at one point in time."""

    at_unix_ns: int
    state: EngineState
