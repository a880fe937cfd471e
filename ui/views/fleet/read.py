"""Read the Fleet page's data from the store, and compute its grids."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.counted_requests import counted_as, counting_notes
from analysis.fleet import FleetQuestion, FleetState, answer_fleet
from analysis.over_time.columns import FloatArray, IntArray, instants
from analysis.over_time.time_bins import SECOND_NS, WIDTHS_S, Bins, bins_of_width
from diagnosis.inputs.arrow import requests_of, samples_of
from diagnosis.inputs.server_labels import with_server_labels
from diagnosis.inputs.servers import Servers
from roofline.peakfile import peaks_in_force
from telemetry.incidents import IncidentRow
from telemetry.requests import Source
from telemetry.window import Window
from ui.kit.unreadable import store_errors
from ui.views.fleet import configs as fleet_configs
from ui.views.fleet import grid, roofline
from ui.views.fleet.configs import ConfigGroup
from ui.views.fleet.replicas import FleetReplicas, ReplicaFacts, fleet, imbalance_of, traffic_of
from ui.views.fleet.roofline import Bound
from ui.views.fleet.starts import Starts, shown_starts

MAX_BINS: Final = 96
FIRST_OF: Final = 4
"""Maximum number of starts whose first requests are read. Each start needs one query."""
ENGINE_COLUMNS: Final = (*grid.ENGINE_COLUMNS, *roofline.ENGINE_COLUMNS)
GPU_COLUMNS: Final = (*grid.GPU_COLUMNS, *roofline.GPU_COLUMNS)
REQUEST_COLUMNS: Final = ("received_unix_ns", "replica", "engine", "ttft_s", "streamed")


@dataclass(frozen=True, slots=True)
class FleetData:
    """The data of the page."""

    window: Window
    fleet: FleetReplicas
    configs: Sequence[ConfigGroup]
    samples_every_s: int | None
    """If only a part of a long range was read, this is the time in seconds from the start of one
    part to the start of the next."""
    requests_one_in: int
    newest_unix_ns: int | None
    simulated: bool
    scraped_replicas: int
    without_samples: int
    """Number of replicas that have requests but no engine samples, in the rows that were read."""
    has_gpus: bool
    bounds: Sequence[Bound]
    starts: Starts
    ignored_labels: Sequence[str]
    """Labels that engines do not have. Filters by these labels apply only to requests."""
    incident: IncidentRow | None
    counting: Sequence[str] = ()
    """Sentences that state what a replica's requests are."""


def read_fleet(engine: Engine, window: Window, equals: Mapping[str, str]) -> FleetData:
    """Read a range of samples, requests and starts."""
    question = FleetQuestion(window, equals, ENGINE_COLUMNS, GPU_COLUMNS, REQUEST_COLUMNS, FIRST_OF)
    with store_errors():
        found = answer_fleet(engine, question)
        counting = counting_notes(counted_as(engine, window, ["replica"]))
    names = sorted(str(name) for name in found.samples["replica"].unique().to_pylist())
    configs = fleet_configs.groups(found.at_end, names)
    request_rows, without_samples = _of_replicas(found.requests, names)
    return FleetData(
        window,
        _fleet(window, names, found, request_rows, configs),
        configs,
        found.samples_every_s,
        found.requests_one_in,
        *found.stored,
        _scraped(found.samples),
        without_samples,
        found.gpus.num_rows > 0,
        roofline.bounds(found.samples, found.gpus, found.at_end, peaks_in_force(os.environ)),
        Starts(shown_starts(found.known_starts, window.from_unix_ns), found.newest_starts),
        found.ignored_labels,
        found.incident,
        counting,
    )


def _fleet(
    window: Window,
    names: Sequence[str],
    state: FleetState,
    request_rows: pa.Table,
    configs: Sequence[ConfigGroup],
) -> FleetReplicas:
    samples, gpus = state.samples, state.gpus
    bins = _bins(window, state.samples_every_s)
    at = _at(samples)
    over_time = {
        **grid.engine_grids(samples, names, bins.index(at), bins.count),
        **grid.gpu_grids(gpus, names, bins.index(_at(gpus)), bins.count),
    }
    whole = {
        **grid.engine_grids(samples, names, np.zeros_like(at), 1),
        **grid.gpu_grids(gpus, names, np.zeros(gpus.num_rows, dtype=np.int64), 1),
    }
    found, servers = with_server_labels(
        requests_of(request_rows), Servers(engines=samples_of(samples))
    )
    labels = found.label("replica")
    # The first byte of a non-streamed response is also its last byte, so it is no TTFT.
    ttft_s: FloatArray = np.where(found.number("streamed") == 0.0, np.nan, found.number("ttft_s"))
    return fleet(
        names,
        bins,
        over_time,
        whole,
        traffic_of(labels, ttft_s),
        imbalance_of(found.server, ttft_s),
        _facts(window, names, state, configs),
        servers.divided,
    )


def _of_replicas(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, int]:
    """The requests of the replicas in `names`, and the number of other replicas with requests."""
    replicas = rows["replica"].cast(pa.string())
    others = set(replicas.unique().to_pylist()) - {None, *names}
    return rows.filter(pc.is_in(replicas, pa.array(names, pa.string()))), len(others)


def _bins(window: Window, samples_every_s: int | None) -> Bins:
    length_s = (window.to_unix_ns - window.from_unix_ns) / SECOND_NS
    min_s = max(1, samples_every_s or 1)
    width_s = next(
        (each for each in WIDTHS_S if length_s / each <= MAX_BINS and each >= min_s),
        WIDTHS_S[-1] * max(1, -(-int(length_s) // WIDTHS_S[-1] // MAX_BINS)),
    )
    return bins_of_width(window.from_unix_ns, window.to_unix_ns, width_s * SECOND_NS)


def _scraped(samples: pa.Table) -> int:
    by_scrape = pc.equal(samples["source"].cast(pa.string()), Source.SCRAPE.value)
    return len(samples.filter(by_scrape.fill_null(False))["replica"].unique())


def _at(table: pa.Table) -> IntArray:
    return instants(table, "at_unix_ns")


def _facts(
    window: Window,
    names: Sequence[str],
    state: FleetState,
    configs: Sequence[ConfigGroup],
) -> dict[str, ReplicaFacts]:
    samples = state.samples
    if not samples.num_rows:
        return {}
    replicas = samples_of(samples).replica
    at, began = _at(samples), instants(samples, "started_unix_ns")
    newest = int(at.max())
    differing_arguments = fleet_configs.differing_arguments(configs)
    held_back = _held_back(state.gpus)
    last: dict[str, int] = {}
    begun: dict[str, set[int]] = {name: set() for name in names}
    for code, name in enumerate(replicas.values):
        mine = replicas.codes == code
        last[name] = int(at[mine].max())
        begun[name].update(np.unique(began[mine]).tolist())
    for start in state.between:
        if start.replica in begun:
            begun[start.replica].add(start.at_unix_ns)
    before = {each.replica for each in state.before}
    anew = fleet_configs.restarts(begun, before, window.from_unix_ns)
    return {
        name: ReplicaFacts(
            silent_s=(newest - last[name]) / SECOND_NS,
            restarts=anew.get(name, ()),
            began_unix_ns=max(begun[name], default=None),
            held_back=held_back[name][0] if name in held_back else None,
            reasons=held_back[name][1] if name in held_back else (),
            differing_arguments=differing_arguments.get(name, ()),
        )
        for name in names
    }


def _held_back(gpus: pa.Table) -> dict[str, tuple[float, Sequence[str]]]:
    """For each replica, the share of GPU samples with a throttled clock, and the reasons for
    throttling."""
    if not gpus.num_rows:
        return {}
    gpu_columns = samples_of(gpus)
    reasons = gpu_columns.texts.get("throttle_reasons")
    if reasons is None:
        return {}
    found: dict[str, tuple[float, Sequence[str]]] = {}
    for code, name in enumerate(gpu_columns.replica.values):
        mine = (gpu_columns.replica.codes == code) & (reasons.codes >= 0)
        if not mine.any():
            continue
        number = np.bincount(reasons.codes[mine], minlength=len(reasons.values))
        throttled = {
            text: int(count)
            for text, count in zip(reasons.values, number.tolist(), strict=True)
            if text and count
        }
        listed = sorted({reason for text in throttled for reason in text.split(",")})
        found[name] = (sum(throttled.values()) / int(number.sum()), listed)
    return found
