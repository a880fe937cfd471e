"""Tests of prefill and decode on two vLLMs behind a proxy: the phases sum to the client's time."""

import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from rig.disaggregated import Disaggregated, RoleServer, SentRequest, ask_all, calls, report
from rig.program import Tailspan
from store.database import open_database
from store.joined.read import read_joined
from store.queries import request_table
from telemetry.joined_request import (
    DELIVERY,
    PREFILL,
    EngineRole,
    JoinedBasis,
    JoinedBy,
    JoinedRequest,
)
from telemetry.window import Window

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SUM_S = 0.005
"""The largest allowed difference between the client's time and the sum of the phases."""
EARLIER_NS = 10**9
"""How far the engine's start of a request may lie before the request was sent."""


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
        # If a busy prefill server records its token late, Tailspan takes this for a difference of
        # clocks.
        answer = read_joined(store, Window(since_ns - EARLIER_NS, time.time_ns()))
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
    assert_sums_to_the_clients_spans(collecting, store, seen, since_ns)


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


def test_a_request_may_wait_at_the_decode_server_for_its_prefill(
    servers: Disaggregated, collecting: Tailspan, store: Engine
) -> None:
    """The router sends the request to both servers at the same time. The prefill then lies within
    the decode server's row."""
    _, port = servers.proxy("--decode-first")
    since_ns = time.time_ns()
    seen = ask_all(port, calls(10, seed=since_ns), 2)
    joined = found(store, seen, since_ns)
    above_s = []
    for _, timed in seen:
        each = joined[str(timed.request_id)]
        assert [hop.role for hop in each.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
        assert [hop.row["replica"] for hop in each.hops] == ["producer", "consumer"]
        first, last = (hop.row for hop in each.hops)
        assert last["received_unix_ns"] < first["received_unix_ns"] + first["prefill_s"] * 1e9
        assert last["kv_load_s"] > 0
        assert not each.hops[-1].recomputed
        assert summed_s(each) == pytest.approx(each.e2e_s, abs=1e-9)
        above_s.append(summed_s(each) - timed.e2e_s)
    assert statistics.median(above_s) <= SUM_S
    assert_sums_to_the_clients_spans(collecting, store, seen, since_ns)


def test_after_a_failed_transfer_the_decode_server_computes_the_prompt(
    servers: Disaggregated, collecting: Tailspan, store: Engine
) -> None:
    """The decode server keeps the KV cache until the first block that could not be loaded."""
    _, port = servers.proxy()
    since_ns = time.time_ns()
    # A block has 128 tokens, and a character is about one token.
    long = [each for each in calls(16, seed=since_ns) if len(each.prompt) > 400]
    lost = [{"wait_for_kv": True, "lost_from_block": index % 2} for index in range(len(long))]
    failing = [
        replace(call, body={"kv_transfer_params": each})
        for call, each in zip(long, lost, strict=True)
    ]
    seen = ask_all(port, failing, 2)
    joined = found(store, seen, since_ns)
    for (_, timed), params in zip(seen, lost, strict=True):
        each = joined[str(timed.request_id)]
        first, last = (hop.row for hop in each.hops)
        assert [hop.recomputed for hop in each.hops] == [False, True]
        assert last["external_cached_tokens"] == last["cached_tokens"]
        assert (last["cached_tokens"] > 0) is (params["lost_from_block"] > 0)
        computed_s = first["prefill_s"] + last["prefill_s"]
        assert each.phases[PREFILL] == pytest.approx(computed_s, abs=1e-6)
        assert summed_s(each) == pytest.approx(each.e2e_s, abs=1e-9)
    assert_sums_to_the_clients_spans(collecting, store, seen, since_ns)


def test_a_killed_prefill_server_loses_and_doubles_no_row(
    servers: Disaggregated, store: Engine
) -> None:
    """The prefill server is killed while requests are in flight."""
    _, port = servers.proxy()
    since_ns = time.time_ns()
    seen, stored = ask_until_killed(port, servers.prefill, store, since_ns)
    assert {timed.status for _, timed in seen} == {200}
    answer = assert_each_row_once(store, since_ns, stored)
    assert any(len(each.hops) == 2 for each in answer)
    assert answer[-1].hops[-1].recomputed


def test_a_killed_decode_server_loses_and_doubles_no_row(
    servers: Disaggregated, store: Engine
) -> None:
    """The decode server is killed while requests are in flight. No later test can use it."""
    servers.start_prefill()
    _, port = servers.proxy()
    since_ns = time.time_ns()
    seen, stored = ask_until_killed(port, servers.decode, store, since_ns)
    answer = assert_each_row_once(store, since_ns, stored)
    by_trace = {each.last["trace_id"]: each for each in answer}
    assert any(each.complete for each in answer)
    failed = [timed for _, timed in seen if timed.status != 200 or timed.cut]
    assert failed
    above_s = []
    for timed in failed:
        each = by_trace[timed.trace_id]
        assert (each.complete, each.ttft_s, each.outcome) == (False, None, None)
        assert [hop.role for hop in each.hops] == [EngineRole.PREFILL]
        assert each.basis is JoinedBasis.ROUTER
        above_s.append(summed_s(each) - timed.e2e_s)
    assert statistics.median(above_s) <= SUM_S


def ask_until_killed(
    port: int, server: RoleServer, store: Engine, since_ns: int
) -> tuple[list[SentRequest], set[str]]:
    """Kill a server while requests are in flight.

    Returns: the requests, and the rows that were stored before the server was killed.
    """
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask_all, port, calls(30, seed=since_ns), 2)
        while len(stored := rows(store, since_ns)) < 8 and not asking.done():
            time.sleep(0.1)
        server.kill_group()
        seen = asking.result()
    time.sleep(3)  # until the other server and the proxy have sent their last rows and spans
    return seen, stored


def assert_each_row_once(store: Engine, since_ns: int, stored: set[str]) -> Sequence[JoinedRequest]:
    """Check that each row is in one joined request, and return the joined requests.

    Args:
        stored: the rows that were stored before a server was killed.
    """
    answer = read_joined(store, Window(since_ns, time.time_ns())).requests
    spans = [hop.row["span_id"] for each in answer for hop in each.hops]
    assert len(spans) == len(set(spans)) >= 8
    assert set(spans) == rows(store, since_ns) >= stored
    for each in answer:
        assert summed_s(each) == pytest.approx(each.e2e_s, abs=1e-9)
    return answer


def assert_sums_to_the_clients_spans(
    collecting: Tailspan, store: Engine, seen: Sequence[SentRequest], since_ns: int
) -> None:
    """Send the client's spans, and compare the sums of the phases with the client's times."""
    report(collecting.port("http"), seen)
    joined = found(store, seen, since_ns, basis="client")
    for _, timed in seen:
        each = joined[str(timed.request_id)]
        assert abs(timed.e2e_s - summed_s(each)) <= SUM_S + (each.phases[DELIVERY] or 0.0)
        if timed.call.stream:
            assert each.ttft_s == pytest.approx(timed.ttft_s, abs=SUM_S)


def rows(store: Engine, since_ns: int) -> set[str]:
    table = request_table(store, Window(since_ns, time.time_ns()), columns=["span_id"])
    return set(table["span_id"].to_pylist())
