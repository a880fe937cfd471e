import random
from dataclasses import replace
from itertools import islice

import pytest

from simulator.dataset import run
from simulator.faults import SimulatedFault, world_of
from simulator.faults.retries import client_timeouts, request_burst
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.requests import Outcome, RequestTimeline

STORM = SimulatedFault(cause="retry_storm", start_s=40.0, end_s=100.0)
FLEET = FleetConfig(
    replicas=1, workload=Workload(rate_per_s=6.0), duration_s=120.0, seed=4, faults=(STORM,)
)


def aborted(rows: list[RequestTimeline]) -> list[RequestTimeline]:
    return [
        row for row in rows if row.outcome is Outcome.ABORT and row.received_unix_ns > 40 * 10**9
    ]


def timeout_s(config: FleetConfig) -> float:
    rewrite = client_timeouts(STORM, world_of(config), random.Random("x"))
    (request,) = islice(Workload(rate_per_s=1.0).arrivals("seed"), 1)
    found = rewrite(request).timeout_s
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rows() -> list[RequestTimeline]:
    return run(FLEET).requests


def test_clients_give_up_at_their_timeout(rows: list[RequestTimeline]) -> None:
    limit_s = timeout_s(FLEET)
    at_timeout = [row for row in aborted(rows) if limit_s <= row.e2e_s < limit_s + 0.2]
    assert len(at_timeout) > 100
    assert len(at_timeout) > 0.95 * len(aborted(rows))


def test_the_same_prompt_is_sent_again_at_once(rows: list[RequestTimeline]) -> None:
    """A retry has the same tenant, the same length and, if known, the same prefix ladder."""
    again = 0
    for row in aborted(rows):
        ended = row.received_unix_ns + round(row.e2e_s * 1e9)
        again += any(
            (other.tenant, other.prompt_tokens) == (row.tenant, row.prompt_tokens)
            and abs(other.received_unix_ns - ended) < 5 * 10**8
            for other in rows
        )
    assert again > 0.6 * len(aborted(rows))


def test_a_client_stops_after_its_last_retry(rows: list[RequestTimeline]) -> None:
    """At severity 1, a client retries four times, so a prompt is sent at most five times."""
    config = world_of(FLEET)
    requests = list(islice(request_burst(STORM, config, random.Random("x")), 5))
    assert {request.retries for request in requests} == {4}
    times: dict[tuple[str | None, int | None], int] = {}
    for row in aborted(rows):
        key = row.tenant, row.prompt_tokens
        times[key] = times.get(key, 0) + 1
    assert max(times.values()) < 20  # a few prompts of one tenant have equal lengths


def test_without_the_fault_no_client_gives_up_early() -> None:
    quiet = run(replace(world_of(FLEET), faults=())).requests
    limit_s = timeout_s(FLEET)
    at_timeout = [row for row in aborted(quiet) if limit_s <= row.e2e_s < limit_s + 0.2]
    assert len(at_timeout) < 5


def test_the_retry_storm_continues_after_the_burst(rows: list[RequestTimeline]) -> None:
    late = [row for row in aborted(rows) if 80 * 10**9 < row.received_unix_ns < 100 * 10**9]
    assert len(late) > 50
