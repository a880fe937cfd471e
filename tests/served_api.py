"""A simulated fleet with an open incident, and a server of the HTTP API over its data."""

import asyncio
import fcntl
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from alerts.evaluation.evaluator import Evaluator
from alerts.openslo.reader import OBJECTIVES, load
from analysis.access.roles_file import Roles
from collector.listen.asgi_server import AsgiHost
from collector.listen.bearer_tokens import BearerGate, BearerTokens
from collector.listen.connections import ConnectionLimits
from collector.listen.host_check import AllowedHosts, HostGate
from collector.testing import background_loop
from server.api.app import api_app, with_api_paths
from server.api.limits import PREFIX, ApiLimits
from server.api.problem import ProblemGate
from server.api.readers import Readers
from server.api.worker_pool import WorkerPool
from server.explorer_launch import reading_environment
from simulator.dataset import run as simulate
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.rollups.marks import begin
from store.writer import Writer
from telemetry.cache_lookups import CacheLookup, CacheResult
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart
from tests.cold_starts import cold_start
from tests.probe.results import EXAMPLE

PAST_S: Final = 1_200
FLOOD_S: Final = 300
STARTED_UNIX_NS: Final = 1_763_634_000 * 10**9
_Row = TypeVar("_Row", RequestTimeline, EngineSample, EngineStart, GpuSample)


def store_fleet(url: str, run_folder: Path, *, flooded: bool = True) -> int:
    """Store a fleet's data up to now: twenty minutes, in whose last five minutes one tenant floods
    the fleet, or, if not `flooded`, the fifteen minutes before the flood.

    Args:
        run_folder: the folder that the processes of this test run share.

    Returns:
        The end of the data, in Unix seconds.
    """
    found = _simulated_once(run_folder)
    end_s = int(time.time())
    if not flooded:
        found = _before(found, PAST_S - FLOOD_S)
    began_s = end_s - (PAST_S if flooded else PAST_S - FLOOD_S)
    at_ns = began_s * 10**9
    requests, samples = _moved(found.requests, at_ns), _moved(found.samples, at_ns)
    starts, gpus = _moved(found.starts, at_ns), _moved(found.gpus, at_ns)
    engine = open_database(url)
    try:
        begin(engine)
        probe = replace(EXAMPLE, at_unix_ns=(end_s - 30) * 10**9)
        with Writer(engine) as writer:
            writer.submit(requests, samples, starts, gpus, probes=[probe]).result(60)
            started = cold_start(replica="sim-0", at_unix_ns=(end_s - 3_600) * 10**9)
            writer.submit([], [], lookups=lookups(end_s), cold_starts=[started]).result(60)
        build_marked(engine, end_s)
        Evaluator(engine, load([OBJECTIVES]).objectives).evaluate(end_s)
    finally:
        engine.dispose()
    return end_s


class _Rows(NamedTuple):
    """The rows of a fleet that started at `STARTED_UNIX_NS`."""

    requests: list[RequestTimeline]
    samples: list[EngineSample]
    starts: list[EngineStart]
    gpus: list[GpuSample]


def _simulated_once(run_folder: Path) -> _Rows:
    """Simulate the flooded fleet once per test run. The other processes read the rows from a
    file, because the simulation takes 7 s of CPU time and reading takes less than 1 s."""
    file = run_folder / "flooded-fleet.pickle"
    with (run_folder / "flooded-fleet.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return _Rows(*pickle.loads(file.read_bytes()))
        flood = SimulatedFault(cause="tenant_flood", start_s=float(PAST_S - FLOOD_S))
        found = simulate(
            FleetConfig(
                workload=Workload(rate_per_s=2.0),
                faults=(flood,),
                started_unix_ns=STARTED_UNIX_NS,
                duration_s=float(PAST_S),
            )
        )
        rows = _Rows(found.requests, found.samples, found.starts, found.gpus)
        whole = file.with_suffix(".part")
        whole.write_bytes(pickle.dumps(tuple(rows)))
        whole.rename(file)
        return rows


def _before(found: _Rows, second: int) -> _Rows:
    """Return the rows of the first seconds, without requests that ended later."""
    end_ns = STARTED_UNIX_NS + second * 10**9
    return _Rows(
        [row for row in found.requests if row.received_unix_ns + (row.e2e_s or 0.0) * 1e9 < end_ns],
        [row for row in found.samples if row.at_unix_ns < end_ns],
        [row for row in found.starts if row.at_unix_ns < end_ns],
        [row for row in found.gpus if row.at_unix_ns < end_ns],
    )


def _moved(rows: list[_Row], to_unix_ns: int) -> list[_Row]:
    """Move all times of rows, as if the fleet had started at `to_unix_ns`."""
    by_ns = to_unix_ns - STARTED_UNIX_NS
    names = [each.name for each in fields(rows[0]) if each.name.endswith("_unix_ns")]
    return [replace(row, **{name: getattr(row, name) + by_ns for name in names}) for row in rows]


def lookups(end_s: int, tenants: tuple[str, str] = ("acme", "acme")) -> list[CacheLookup]:
    """Return a hit and a miss of a gateway's cache for each tenant in turn."""
    return [
        CacheLookup(
            trace_id=f"{number + 1:032x}",
            span_id=f"{number + 1:016x}",
            at_unix_ns=(end_s - 20 + number) * 10**9,
            result=(CacheResult.HIT, CacheResult.MISS)[number % 2],
            cache="portkey",
            duration_s=0.02,
            tenant=tenants[number % 4 // 2],
            model="llama-3-8b-sim",
        )
        for number in range(20)
    ]


@dataclass(frozen=True, slots=True)
class ServedApi:
    address: str
    pool: WorkerPool
    url: str
    token: str | None = None
    """The token that `get` sends."""

    def get(self, path: str, **about: Any) -> httpx.Response:
        """Send a GET request; `path` is relative to `/api/v1/`."""
        if self.token is not None:
            shown = {"Authorization": f"Bearer {self.token}"}
            about["headers"] = {**shown, **about.get("headers", {})}
        return httpx.get(f"{self.address}{PREFIX}v1/{path}", timeout=300, **about)


@contextmanager
def served(
    url: str,
    limits: ApiLimits | None = None,
    tokens: BearerTokens | None = None,
    roles: Roles | None = None,
    objectives: Sequence[Path] = (),
) -> Iterator[ServedApi]:
    """Serve the API and `/metrics`, with the checks and limits of `tailspan up`."""
    environment = reading_environment(url, objectives, None, None, roles.path if roles else None)
    pool = WorkerPool(environment, limits or ApiLimits(seconds=300))
    app: ASGIApp = with_api_paths(PlainTextResponse("up 1\n"), api_app(pool, Readers(roles)))
    if tokens is not None:
        app = BearerGate(app, tokens, role_paths=PREFIX)
    app = ProblemGate(HostGate(app, AllowedHosts()), PREFIX)
    host = AsgiHost(
        app,
        host="127.0.0.1",
        port=0,
        option="--metrics-port",
        limits=ConnectionLimits(connections=64, per_peer=16),
    )
    with background_loop() as loop:
        asyncio.run_coroutine_threadsafe(host.start(), loop).result(30)
        try:
            yield ServedApi(f"http://127.0.0.1:{host.port}", pool, url)
        finally:

            async def stop() -> None:
                await pool.close()
                await host.stop(1)

            asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
