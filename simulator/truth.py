"""The ground truth of a simulation. Pure. It is stored separately, so that a diagnosis cannot read
it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from simulator.faults import INJECTIONS, world_of
from simulator.fleet_config import FleetConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCause:
    """A cause in the simulation. `end_unix_s` is None if the cause has no end."""

    cause: str
    severity: float
    start_unix_s: float
    end_unix_s: float | None
    where: Mapping[str, str]
    """Labels of the affected requests, or of the requests that cause the fault. Without labels, all
    requests are affected."""
    affects: str

    def line(self) -> str:
        """A line of JSON."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)


def truth_of(config: FleetConfig) -> tuple[SimulatedCause, ...]:
    """The causes in the order of the faults."""
    config = world_of(config)
    began_s = config.started_unix_ns / 1e9
    return tuple(
        SimulatedCause(
            cause=fault.cause,
            severity=fault.severity,
            start_unix_s=began_s + fault.start_s,
            end_unix_s=None if fault.end_s == float("inf") else began_s + fault.end_s,
            where=INJECTIONS[fault.cause].where(fault, config),
            affects=INJECTIONS[fault.cause].affected_latency(fault, config),
        )
        for fault in config.faults
    )
