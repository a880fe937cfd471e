"""Run a simulation, and return its telemetry as rows and columns, with the ground truth.

A dataset contains the rows that a collector would store. Creating it needs no network, database or
clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from simulator.faults import world_of
from simulator.fleet import simulate
from simulator.fleet_config import FleetConfig
from simulator.rows import operation_of, plain, request_of, sample_of, start_of
from simulator.truth import SimulatedCause, truth_of
from telemetry.application_operations import ApplicationOperation
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import PARTS, RequestTimeline, part_s
from telemetry.starts import EngineStart

_PROCESS = 1
_ARROW = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The telemetry of a simulated fleet in order of time, and the simulated causes."""

    config: FleetConfig
    truth: tuple[SimulatedCause, ...]
    requests: list[RequestTimeline]
    samples: list[EngineSample]
    gpus: list[GpuSample]
    starts: list[EngineStart]
    operations: list[ApplicationOperation]
    """The requests as the router reports them. There are none without prefill replicas."""
    lost: int
    """The number of requests that arrived while all servers were down. No server reports these
    requests."""

    def request_table(self) -> pa.Table:
        """The requests, as `store.queries.request_table` returns them."""
        table = table_of(RequestTimeline, self.requests)
        table = table.append_column(
            "tpot_s", pa.array([row.tpot_s for row in self.requests], pa.float64())
        )
        for part in PARTS:
            whole = [
                part_s(
                    getattr(row, f"prefill_{part}"), getattr(row, f"decode_{part}"), row.decode_s
                )
                for row in self.requests
            ]
            table = table.append_column(part, pa.array(whole, pa.float64()))
        return table

    def sample_table(self) -> pa.Table:
        """The engines' samples, as `store.queries.sample_table` returns them."""
        return table_of(EngineSample, self.samples)

    def gpu_table(self) -> pa.Table:
        """The GPUs' samples, as `store.queries.gpu_table` returns them."""
        return table_of(GpuSample, self.gpus)


def run(config: FleetConfig) -> Dataset:
    """Simulate a fleet to its end.

    Raises:
        ValueError: the simulation has no end, because `duration_s` is None and there is no trace.
    """
    if config.duration_s is None and not config.workload.trace:
        raise ValueError(
            "duration_s: None; allowed: more than 0, because a dataset must have an end"
        )
    requests: list[RequestTimeline] = []
    samples: list[EngineSample] = []
    gpus: list[GpuSample] = []
    starts: list[EngineStart] = []
    operations: list[ApplicationOperation] = []
    in_force: dict[str, tuple[str | None, int]] = {}
    lost = 0
    for second in simulate(config):
        lost = second.lost
        at_unix_ns = config.started_unix_ns + round(second.at_s * 1e9)
        operations += (operation_of(each, config.started_unix_ns) for each in second.routed)
        for report in second.replicas:
            about = (report.replica, report.region)
            requests += [
                request_of(record, len(requests) + number, *about)
                for number, record in enumerate(report.records)
            ]
            gpus += report.gpus
            if report.state is None:
                continue
            samples.append(sample_of(report.state, at_unix_ns, _PROCESS, *about))
            begun = (report.state.config, report.state.started_unix_ns)
            if in_force.get(report.replica) != begun:
                in_force[report.replica] = begun
                starts.append(start_of(report.state, _PROCESS, *about))
    requests.sort(key=lambda row: row.received_unix_ns)
    return Dataset(
        config=world_of(config),
        truth=truth_of(config),
        requests=requests,
        samples=samples,
        gpus=gpus,
        starts=starts,
        operations=operations,
        lost=lost,
    )


def table_of(noun: type, rows: Sequence[Any]) -> pa.Table:
    """Return rows as a table with the store's column names and types."""
    hints = get_type_hints(noun)
    return pa.table(
        {name: _column(hint, (getattr(row, name) for row in rows)) for name, hint in hints.items()}
    )


def _column(hint: Any, values: Iterable[object]) -> pa.Array:
    arms = [arm for arm in get_args(hint) if arm is not NoneType] or [hint]
    kind = str if issubclass(arms[0], Enum) else arms[0]
    if kind is str:
        values = map(plain, values)
    return pa.array(list(values), _ARROW[kind])
