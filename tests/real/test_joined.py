"""Tests of prefill and decode on two vLLMs behind a proxy: the phases sum to the client's time."""

import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from rig.disaggregated import Disaggregated, SentRequest, ask_all, calls, report
from rig.program import Tailspan
from store.database import open_database
from store.joined.read import read_joined
from store.queries import request_table
from telemetry.joined_request import DELIVERY, EngineRole, JoinedBasis, JoinedBy, JoinedRequest
from telemetry.window import Window

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SUM_S = 0.005
"""The largest allowed difference between the client's time and the sum of the phases."""


@pytest.fixture(scope="module")
def collecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tailspan]:
    folder = tmp_path_factory.mktemp("joined")
    url = f"sqlite:///{folder}/tailspan.db"
    with Tailspan(folder, "collect", "--database", url) as running:
        running.wait_for("Ctrl-C stops it")
        yield running


@pytest.fixture(scope="module")
def servers(
    installed: None, collecting: Tailspan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disaggregated]:
    folder = tmp_path_factory.mktemp("servers")
    with Disaggregated(folder, collecting.port("http")) as running:
        yield running


@pytest.fixture
def store(collecting: Tailspan) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{collecting.folder}/tailspan.db", create=False)
    yield engine
    engine.dispose()


def found(
    store: Engine, seen: Sequence[SentRequest], since_ns: int, hops: int = 2, basis: str = "router"
) -> dict[str, JoinedRequest]:
    """Wait until these requests are joined, and return them by the client's request id."""
    wanted = {timed.request_id for _, timed in seen}
    deadline = time.monotonic() + 30
    while True:
        answer = read_joined(store, Window(since_ns, time.time_ns()))
        by_id = {
            each.last["request_id"].removesuffix("-0"): each
            for each in answer.requests
            if len(each.hops) >= hops and each.basis == basis
        }
        if wanted <= by_id.keys() or time.monotonic() > deadline:
            return by_id
        time.sleep(0.5)


def summed_s(request: JoinedRequest) -> float:
    return sum(each for each in request.phases.values() if each is not None)


def test_the_phases_sum_to_the_clients_stopwatch(
    servers: Disaggregated, collecting: Tailspan, store: Engine
) -> None:
    """The router's span begins after the client's span. On a busy machine, both read their clocks
    late, so the test compares the median of the sums."""
    _, port = servers.proxy()
    ask_all(port, calls(10, seed=1), 1)  # the first steps of a server are slow
    since_ns = time.time_ns()
    seen = ask_all(port, calls(30, seed=since_ns), 2)  # prompts that no server has cached
    assert {timed.status for _, timed in seen} == {200}
    joined = found(store, seen, since_ns)
    above_s = []
    for _, timed in seen:
        each = joined[str(timed.request_id)]
        assert [hop.role for hop in each.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
        assert [hop.row["replica"] for hop in each.hops] == ["producer", "consumer"]
        assert each.last["trace_id"] == timed.trace_id
        assert each.basis is JoinedBasis.ROUTER
        assert summed_s(each) == pytest.approx(each.e2e_s, abs=1e-9)
        above_s.append(summed_s(each) - timed.e2e_s)
    assert statistics.median(above_s) <= SUM_S
    loaded = [each.last["external_cached_tokens"] for each in joined.values()]
    assert sum(tokens > 0 for tokens in loaded) >= len(seen) / 2
    shifts_s = [abs(hop.clock_shift_s) for each in joined.values() for hop in each.hops]
    assert max(shifts_s) <= SUM_S  # all processes have the same clock
    report(collecting.port("http"), seen)
    joined = found(store, seen, since_ns, basis="client")
    for _, timed in seen:
        each = joined[str(timed.request_id)]
        assert abs(timed.e2e_s - summed_s(each)) <= SUM_S + (each.phases[DELIVERY] or 0.0)
        if timed.call.stream:
            assert each.ttft_s == pytest.approx(timed.ttft_s, abs=SUM_S)


def test_a_dropped_context_is_joined_by_the_request_id(
    servers: Disaggregated, store: Engine
) -> None:
    _, port = servers.proxy("--drop-context")
    since_ns = time.time_ns()
    seen = ask_all(port, calls(10, seed=3), 2)
    joined = found(store, seen, since_ns)  # the proxy reports the response's id
    above_s = []
    for _, timed in seen:
        each = joined[str(timed.request_id)]
        assert (len(each.hops), each.joined_by) == (2, JoinedBy.REQUEST_ID)
        above_s.append(summed_s(each) - timed.e2e_s)
    assert statistics.median(above_s) <= SUM_S


def test_a_dropped_request_id_is_joined_by_the_trace(servers: Disaggregated, store: Engine) -> None:
    _, port = servers.proxy("--drop-request-id")
    since_ns = time.time_ns()
    seen = ask_all(port, calls(10, seed=4), 2)
    joined = found(store, seen, since_ns)
    for _, timed in seen:
        assert joined[str(timed.request_id)].joined_by is JoinedBy.TRACE


def test_a_killed_prefill_server_loses_and_doubles_no_row(
    servers: Disaggregated, store: Engine
) -> None:
    """The prefill server is killed while requests are in flight. No later test can use the servers:
    an incomplete file of ExampleConnector also ends the decode engine."""
    _, port = servers.proxy()
    since_ns = time.time_ns()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask_all, port, calls(30, seed=5), 2)
        while len(rows(store, since_ns)) < 8 and not asking.done():
            time.sleep(0.1)
        servers.prefill.kill_group()
        asking.result()
    time.sleep(3)  # until the decode server has sent its last rows
    answer = read_joined(store, Window(since_ns, time.time_ns()))
    spans = [hop.row["span_id"] for each in answer.requests for hop in each.hops]
    assert len(spans) == len(set(spans)) >= 8
    assert any(len(each.hops) == 2 for each in answer.requests)
    assert set(spans) == rows(store, since_ns)
    for each in answer.requests:
        assert summed_s(each) == pytest.approx(each.e2e_s, abs=1e-9)


def rows(store: Engine, since_ns: int) -> set[str]:
    table = request_table(store, Window(since_ns, time.time_ns()), columns=["span_id"])
    return set(table["span_id"].to_pylist())
