import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import Engine

from analysis.joined.stats import answer_joined_stats
from analysis.stats import StatsQuestion
from store.database import open_database
from store.writer import Writer
from telemetry import starts
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.starts import EngineStart
from telemetry.window import Window
from tests.cli.conftest import START_S
from tests.cli.output import objects
from tests.store.joined.rows import decode, prefill

Run = Callable[..., Result]

LABEL = "\x1b[31mred"
REST = {"basis": Basis.HTTP, "source": Source.INSTRUMENTATION}


def pair(number: int, at_s: float = 0.0, **changes: Any) -> list[RequestTimeline]:
    """Return the rows of one request at both engines, with the same trace."""
    common = {
        "trace_id": f"{number + 1:032x}",
        "request_id": f"cmpl-{number}-0",
        "outcome": Outcome.LENGTH,
        **REST,
        **changes,
    }
    at_ns = round((START_S + 10 + number + at_s) * 1e9)
    first = prefill(2 * number, received_unix_ns=at_ns, **common)
    second = decode(2 * number + 1, **{**common, "received_unix_ns": at_ns + 120_000_000})
    return [RequestTimeline(**first), RequestTimeline(**second)]


def router(row: RequestTimeline, later_s: float = -0.002, **changes: Any) -> ApplicationOperation:
    """Return a router's span around the request of a row."""
    about: dict[str, Any] = {
        "trace_id": row.trace_id,
        "span_id": "f" * 16,
        "at_unix_ns": row.received_unix_ns + round(later_s * 1e9),
        "operation": Operation.ROUTER,
        "length_s": 0.525,
        "process": "c" * 16,
        "ttft_s": 0.16,
        **changes,
    }
    return ApplicationOperation(**about)


def started(replica: str, kv_role: str) -> EngineStart:
    return EngineStart(
        replica=replica,
        engine=0,
        process=1,
        at_unix_ns=(START_S - 3_600) * 10**9,
        config=replica,
        arguments=starts.written({"kv_transfer.kv_role": kv_role}),
    )


STARTS = [started("p", "kv_producer"), started("d", "kv_consumer")]


@pytest.fixture
def put(url: str) -> Callable[..., None]:
    def write(*rows: RequestTimeline, operations: Any = (), engines: Any = STARTS) -> None:
        engine: Engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit(list(rows), [], starts=engines, operations=operations).result(20)
        engine.dispose()

    return write


def test_json_has_one_object_per_user_request(run: Run, put: Callable[..., None]) -> None:
    rows = [row for number in range(5) for row in pair(number)]
    put(*reversed(rows), operations=[router(rows[0])])
    found = objects(run("requests", "--joined", "--format", "json", "--sort", "started_at"))
    assert len(found) == 5
    for each in found:
        assert [hop["role"] for hop in each["hops"]] == ["prefill", "decode"]
        assert sum(each["phases"].values()) == pytest.approx(each["e2e_s"], abs=1e-9)
        assert sum(filter(None, each["ttft_phases"].values())) == pytest.approx(each["ttft_s"])
        assert each["cost_usd"] == pytest.approx(0.003)
    assert (found[0]["basis"], found[0]["e2e_s"], found[0]["ttft_s"]) == ("router", 0.525, 0.16)
    assert {each["basis"] for each in found[1:]} == {"engines"}
    assert objects(run("requests", "--format", "json"))[0]["trace_id"]  # each engine's row stays
    assert len(objects(run("requests", "--format", "json"))) == 10


def test_stats_count_one_request_per_user(run: Run, put: Callable[..., None]) -> None:
    put(
        *(row for number in range(8) for row in pair(number, tenant=f"t{number % 2}")),
        *pair(8, tenant="t0", outcome=Outcome.ABORT),
        pair(9, tenant="t1")[0],  # the decode row is missing
    )
    first, second = objects(run("stats", "--joined", "--by", "tenant", "--format", "json"))
    assert [first["tenant"], second["tenant"]] == ["t0", "t1"]
    assert [first["requests"], first["incomplete"], first["aborted"]] == [5, 0, 1]
    assert [second["requests"], second["incomplete"], second["errors"]] == [5, 1, 0]
    assert first["measured_at"] == {"client": 0, "router": 0, "engines": 5}
    assert first["throughput_rps"] == pytest.approx(5 / 600)
    assert first["output_tokens_per_s"] == pytest.approx(5 * 32 / 600)
    assert first["ttft_s"]["p50"] == pytest.approx(0.155)
    assert first["e2e_s"]["p99"] == pytest.approx(0.520)
    assert first["phases"]["kv_transfer_s"]["p50"] == pytest.approx(0.060)
    assert set(first["first_content_s"].values()) == {None}
    assert (first["precision"], first["truncated"]) == ("exact", False)
    for group in (first, second):
        means = group["means"]
        assert sum(means["phases"].values()) == pytest.approx(means["e2e_s"], abs=1e-9)
        assert sum(means["ttft_phases"].values()) == pytest.approx(means["ttft_s"], abs=1e-9)
    by_server = objects(run("stats", "--joined", "--by", "decode_replica", "--format", "json"))
    assert [(each["decode_replica"], each["requests"]) for each in by_server] == [
        ("d", 9),
        (None, 1),
    ]


def test_means_of_phases_sum_if_requests_have_different_phases(
    run: Run, put: Callable[..., None]
) -> None:
    """Request 1 only went to the decode engine, so it has no prefill engine and no transfer."""
    put(*pair(0), pair(1)[1])
    (found,) = objects(run("stats", "--joined", "--format", "json"))
    assert found["phases"]["prefill_queue_s"]["p50"] == pytest.approx(0.010)
    assert found["means"]["phases"]["prefill_queue_s"] == pytest.approx(0.005)
    assert sum(found["means"]["phases"].values()) == pytest.approx(found["means"]["e2e_s"])


def test_stats_without_joined_state_what_they_count(run: Run, put: Callable[..., None]) -> None:
    put(*(row for number in range(5) for row in pair(number)))
    (whole,) = objects(run("stats", "--format", "json"))
    assert (whole["requests"], whole["counted_as"]) == (5, "joined_requests")
    assert "each user’s request counts once" in run("stats").stdout
    by_server = objects(run("stats", "--by", "replica", "--format", "json"))
    assert [(each["requests"], each["counted_as"]) for each in by_server] == [
        (5, "engine_rows"),
        (5, "engine_rows"),
    ]
    assert "Engine rows" in run("stats", "--by", "replica").stdout


def test_stats_as_text_have_the_phases_and_their_sum(run: Run, put: Callable[..., None]) -> None:
    put(*pair(0, tenant=LABEL), *pair(1))
    shown = run("stats", "--joined", "--by", "tenant").stdout
    assert "2 in 2 groups" in shown
    assert "2 measured at the engines: the time in the router is not known" in shown
    assert "\x1b" not in shown
    (header,) = (line for line in shown.splitlines() if line.endswith("delivery     sum"))
    assert "KV transfer" in header
    assert any(
        line.startswith("E2E, mean") and line.endswith("520 ms") for line in shown.split("\n")
    )


def test_stats_refuse_what_joined_requests_do_not_have(run: Run, put: Callable[..., None]) -> None:
    put(*pair(0))
    wrong = run("stats", "--joined", "--by", "replica")
    assert wrong.exit_code == 2
    assert "joined requests cannot be grouped by 'replica'; allowed: outcome, basis" in wrong.output
    wrong = run("stats", "--joined", "--precision", "sketch")
    assert wrong.exit_code == 2
    assert "precision sketch: rollups do not have joined requests; allowed: exact" in wrong.output
    nothing = run("stats", "--joined", "--where", "tenant=nobody")
    assert "No requests" in nothing.stderr or "No joined requests" in nothing.stderr


def test_rates_of_a_truncated_window_are_unknown(url: str, put: Callable[..., None]) -> None:
    put(*(row for number in range(4) for row in pair(number)))
    engine = open_database(url)
    question = StatsQuestion(Window(START_S * 10**9, (START_S + 600) * 10**9))
    found = answer_joined_stats(engine, question, max_rows=4)
    engine.dispose()
    assert found.truncated
    assert found.groups[0]["requests"] == 2
    assert found.groups[0]["throughput_rps"] is None
    assert found.groups[0]["output_tokens_per_s"] is None


def test_each_hop_has_its_first_content_and_its_wait_for_the_kv_cache(
    run: Run, put: Callable[..., None]
) -> None:
    first, second = pair(0)
    put(first, replace(second, first_content_s=0.2, kv_load_s=0.004, queue_held_s=0.005))
    (found,) = objects(run("requests", "--joined", "--format", "json"))
    reported = [(hop["first_content_s"], hop["kv_load_s"]) for hop in found["hops"]]
    assert reported == [(None, None), (0.2, 0.004)]
    # the user gets the first byte of the decode engine after 155 ms; the content follows 165 ms
    # later
    assert found["first_content_s"] == pytest.approx(0.320)


def test_a_routers_span_is_used_for_its_own_call_only(run: Run, put: Callable[..., None]) -> None:
    """Two calls have the same trace id, but the router reports a span for the first call only."""
    calls = [*pair(0), *pair(5, trace_id=pair(0)[0].trace_id)]
    put(*calls, operations=[router(calls[0])])
    ask = ("requests", "--joined", "--format", "json", "--sort", "started_at")
    assert [each["basis"] for each in objects(run(*ask))] == ["router", "engines"]


def test_a_router_with_a_wrong_clock_is_used(run: Run, put: Callable[..., None]) -> None:
    rows = pair(0)
    put(*rows, operations=[router(rows[0], 120)])
    (found,) = objects(run("requests", "--joined", "--format", "json"))
    assert (found["basis"], found["e2e_s"]) == ("router", 0.525)
    assert all(hop["clock_shift_s"] > 100 for hop in found["hops"])
    assert sum(found["phases"].values()) == pytest.approx(0.525)


@pytest.mark.parametrize(
    ("response_id", "later_s", "others", "basis", "number"),
    [
        ("cmpl-0", 0.0, 0, "router", 200),
        ("0", 0.0, 0, "router", 1),
        ("cmpl-1000", 0.0, 0, "engines", 1),
        (None, 0.0, 0, "engines", 1),
        ("cmpl-0", 120.0, 0, "engines", 1),  # at another time, it is another request
        ("cmpl-0", 0.0, 1, "engines", 1),  # two routers report this id, so the router is unknown
    ],
)
def test_a_router_that_passes_on_no_trace_is_found_by_the_response(
    run: Run,
    put: Callable[..., None],
    response_id: str | None,
    later_s: float,
    others: int,
    basis: str,
    number: int,
) -> None:
    rows = [row for each in range(number) for row in pair(each)]
    spans = [
        router(
            rows[0],
            later_s - 0.002,
            trace_id=f"{each:x}" + "e" * 31,
            response_id=response_id,
        )
        for each in range(1 + others)
    ]
    put(*rows, operations=spans)
    ask = ("requests", "--joined", "--format", "json", "--sort", "started_at")
    first = objects(run(*ask))[0]
    assert first["basis"] == basis
    assert sum(first["phases"].values()) == pytest.approx(first["e2e_s"], abs=1e-9)
    assert (first["e2e_s"] == 0.525) is (basis == "router")


def test_the_clients_report_comes_before_the_routers(run: Run, put: Callable[..., None]) -> None:
    rows = pair(0)
    client = RequestTimeline(
        trace_id=rows[0].trace_id,
        span_id="c" * 16,
        request_id="cmpl-0",
        received_unix_ns=rows[0].received_unix_ns - 4_000_000,
        e2e_s=0.530,
        ttft_s=0.165,
        outcome=Outcome.STOP,
        source=Source.CLIENT,
        basis=Basis.CLIENT,
    )
    put(*rows, client)
    (found,) = objects(run("requests", "--joined", "--format", "json"))
    assert (found["basis"], found["e2e_s"], found["ttft_s"]) == ("client", 0.530, 0.165)


def test_filters_limits_and_sorting(run: Run, put: Callable[..., None]) -> None:
    rows = [*pair(0, tenant="acme"), *pair(1, tenant="globex"), *pair(2, tenant="globex")]
    put(*rows)
    ask = ("requests", "--joined", "--format", "json")
    assert len(objects(run(*ask, "--where", "tenant=globex"))) == 2
    assert len(objects(run(*ask, "--where", "replica=p"))) == 3
    assert len(objects(run(*ask, "--where", "request_id=cmpl-1-0", "--where", "basis=http"))) == 1
    (newest,) = objects(run(*ask, "--limit", "1"))
    assert newest["request_id"] == "cmpl-2-0"
    assert len(objects(run(*ask, "--sort", "-kv_transfer_s"))) == 3
    wrong = run("requests", "--joined", "--sort", "queue_s")
    assert wrong.exit_code == 2
    assert "allowed with --joined: started_at, model" in wrong.output


def test_text_shows_the_engines_and_no_control_characters(
    run: Run, put: Callable[..., None]
) -> None:
    put(*pair(0, tenant=LABEL))
    shown = run("requests", "--joined").stdout
    assert "p → d" in shown
    assert "1 of 1, sorted by -started_at" in shown
    assert "\x1b" not in shown
    for name in ("prefill queue", "KV transfer", "decode queue", "delivery", "TTFT", "E2E"):
        assert name in shown


def test_without_a_connector_no_request_is_joined(run: Run, put: Callable[..., None]) -> None:
    put(*pair(0), engines=())
    result = run("requests", "--joined")
    assert result.exit_code == 0
    assert "No joined requests started" in result.stderr
    assert "--kv-transfer-config" in result.stderr


def fleet(number: int, slow: bool) -> list[RequestTimeline]:
    """Return the rows of a request; with `slow`, loading the KV cache takes 2 s."""
    first, second = pair(number, at_s=0.5 * number - 310)
    waited_s = 2.0 if slow else 0.0
    none: dict[str, Any] = dict.fromkeys(("queue_seats_s", "queue_kv_s", "queue_budget_s"), 0.0)
    return [
        first,
        replace(
            second,
            queue_s=0.01 + waited_s,
            queue_held_s=waited_s,
            **none,
            queue_step_s=0.01,
            ttft_s=0.035 + waited_s,
            e2e_s=0.4 + waited_s,
        ),
    ]


def test_explain_begins_with_the_users_latency(run: Run, put: Callable[..., None]) -> None:
    rows = [row for number in range(400) for row in fleet(number, slow=number >= 200)]
    put(*rows)
    at = ("--from", str(START_S), "--to", str(START_S + 300), "--baseline")
    ask = ("explain", "--fast", *at, f"{START_S - 300}/{START_S}")
    printed = json.loads(run(*ask, "--format", "json", window=False).stdout)
    joined = printed["joined"]
    assert joined["requests"] >= 190
    phases = {each["phase"]: each for each in joined["phases"]}
    assert phases["kv_transfer"]["excess_s"] == pytest.approx(2.0, abs=0.05)
    assert sum(each["now_s"] for each in phases.values()) == pytest.approx(joined["now_s"])
    pools = {each["role"]: each for each in joined["pools"]}
    assert pools["prefill"]["replicas"] == ["p"]
    assert pools["prefill"]["explanation"]["verdict"] == "no_incident"
    slow = pools["decode"]["explanation"]
    assert slow["verdict"] == "incident"
    assert slow["causes"][0]["id"] == "kv_transfer"
    assert slow["causes"][0]["where"]["pool"] == "decode"
    shown = run(*ask, window=False).stdout
    assert "joined requests (prefill and decode on different servers)" in shown
    assert "Decode pool (d), growth of its phases +2.00 s: TTFT of its slowest" in shown
    one = json.loads(run(*ask, "--where", "replica=d", "--format", "json", window=False).stdout)
    assert "joined" not in one
