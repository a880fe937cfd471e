"""The state of one engine: gauges, running totals, configuration, hardware."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.hardware import UNKNOWN, Machine

Number = int | float


def _nothing() -> None:
    """There is nothing to add up."""


@dataclass(slots=True)
class EngineState:
    """One engine's gauges and running totals, by metric name of `names.py`."""

    engine: int
    started_unix_ns: int
    model: str | None = None
    config: str | None = None
    gauges: dict[str, Number] = field(default_factory=dict)
    totals: dict[str, Number] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """Failures of our hooks, by hook. `standing` adds this process's to the engine core's."""
    drops: dict[str, int] = field(default_factory=dict)
    """Requests of this process that are not reported, by reason."""

    load: Any = None
    """The latest word on what it has to do, as `enginestats.load_of` reads it."""
    catch_up: Callable[[], None] = _nothing
    """Adds up what has been noted since; called before the state is told."""
    version: str | None = None
    arguments: dict[str, Scalar] = field(default_factory=dict)
    """The engine arguments in force, as `fingerprint.py` tells them."""
    machine: Machine = UNKNOWN

    def add(self, name: str, amount: Number) -> None:
        """Add to a running total, which begins at zero."""
        self.totals[name] = self.totals.get(name, 0) + amount

    def standing(
        self,
        own_totals: Mapping[str, Number],
        hook_failures: Mapping[str, int],
        drops: Mapping[str, int] | None = None,
    ) -> "EngineState":
        """This state as it stands, which the engine's next step will not change.

        Args:
            own_totals: the instrumentation's totals on itself, told with every engine.
            hook_failures: its failures by hook in this process, likewise.
            drops: requests that it did not report, by reason, likewise.
        """
        return replace(
            self,
            load=None,
            catch_up=_nothing,
            gauges=dict(self.gauges),
            totals={**self.totals, **own_totals},
            failures=dict(Counter(hook_failures) + Counter(self.failures)),
            drops=dict(drops or {}),
        )


class Sample(NamedTuple):
    """One engine as it stood at an instant."""

    at_unix_ns: int
    state: EngineState
