import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.joined.grouping import MAX_HOPS, base_id
from store.joined.joining import Outside, joined_requests
from store.joined.roles import stated_roles
from telemetry import starts
from telemetry.joined_request import (
    JOINED_PHASES,
    EngineRole,
    JoinedBasis,
    JoinedBy,
    JoinedRequest,
    Row,
)
from telemetry.starts import EngineStart
from tests.store.joined.rows import ROLES, START_NS, S, decode, prefill, row

BOTH: dict[tuple[str, int | None], EngineRole | None] = {("p", 0): None, ("d", 0): None}


def only(found: list[JoinedRequest]) -> JoinedRequest:
    assert len(found) == 1
    return found[0]


def assert_sums(request: JoinedRequest) -> None:
    values = [each for each in request.phases.values() if each is not None]
    assert min(values) >= 0
    assert sum(values) == pytest.approx(request.e2e_s, abs=1e-9)
    if request.ttft_phases is not None:
        until = sum(each or 0.0 for each in request.ttft_phases.values())
        assert until == pytest.approx(request.ttft_s, abs=2e-9)


def router(start_s: float = -0.002, e2e_s: float = 0.525, **values: Any) -> Outside:
    about = {"ttft_s": 0.160, "basis": JoinedBasis.ROUTER, **values}
    return Outside(START_NS + round(start_s * S), e2e_s, **about)


def test_two_rows_of_a_trace_are_one_request_of_a_user() -> None:
    found = only(joined_requests([decode(), prefill()], ROLES))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    assert found.phases == pytest.approx(
        {
            "route_s": 0.005,  # the front end of the prefill engine
            "prefill_queue_s": 0.010,
            "prefill_s": 0.050,
            "kv_transfer_s": 0.060,  # the prefill's response, the router, the decode's front end
            "decode_queue_s": 0.010,
            "decode_s": 0.370,  # the first step loads the KV cache, so it belongs to decode
            "delivery_s": 0.015,
        }
    )
    assert_sums(found)
    assert found.ttft_s == pytest.approx(0.155)
    assert found.e2e_s == pytest.approx(0.520)
    assert (found.basis, found.joined_by) == (JoinedBasis.ENGINES, JoinedBy.TRACE)
    assert (found.complete, found.outcome, found.cost_usd) == (True, "length", 0.003)


def test_the_first_content_counts_from_the_routers_start() -> None:
    for ttft_s, first_content_s, expected_s in (
        (0.035, 0.235, 0.360),  # 200 ms of reasoning after the router's first byte at 160 ms
        (0.035, 0.035, 0.160),
        (0.035, 9.0, 0.525),  # a wrong row: content cannot come after the end
        (0.035, None, None),
        (None, 0.235, None),
    ):
        late = decode(ttft_s=ttft_s, first_content_s=first_content_s)
        found = only(joined_requests([prefill(), late], ROLES, lambda chain: [router()]))
        assert found.first_content_s == pytest.approx(expected_s)


def test_the_time_at_the_router_is_divided_without_a_rest() -> None:
    found = only(joined_requests([prefill(), decode()], ROLES, lambda chain: [router()]))
    assert found.basis is JoinedBasis.ROUTER
    assert (found.e2e_s, found.ttft_s) == (0.525, 0.160)
    assert found.phases["route_s"] == pytest.approx(0.007)
    assert found.phases["delivery_s"] == pytest.approx(0.018)
    assert [hop.clock_shift_s for hop in found.hops] == [0.0, 0.0]
    assert_sums(found)


def test_a_delivery_that_is_recorded_late_moves_no_hop() -> None:
    """A server may record the last write after the client has read it."""
    found = only(joined_requests([prefill(), decode()], ROLES, lambda chain: [router(e2e_s=0.512)]))
    assert [hop.clock_shift_s for hop in found.hops] == [0.0, 0.0]
    assert found.phases["delivery_s"] == pytest.approx(0.005)
    assert_sums(found)


def test_the_wait_for_remote_kv_is_transfer_and_not_queue() -> None:
    """With NIXL, a request stays in the queue until its KV cache arrives."""
    found = only(joined_requests([prefill(), decode(queue_s=0.1, queue_held_s=0.09)], ROLES))
    assert found.phases["decode_queue_s"] == pytest.approx(0.010)
    assert found.phases["kv_transfer_s"] == pytest.approx(0.150)
    assert_sums(found)


def test_only_the_loading_of_the_kv_cache_is_transfer_if_the_row_has_reasons() -> None:
    """Waiting for a grammar or an adapter counts as the decode engine's queue."""
    held: dict[str, Any] = {"queue_s": 0.1, "queue_held_s": 0.09, "kv_load_s": 0.05}
    labels: list[dict[str, Any]] = [{}, {"lora": "ada"}]
    for more in labels:
        both = [prefill(**more), decode(**held, **more)]
        found = only(joined_requests(both, ROLES))
        assert found.phases["decode_queue_s"] == pytest.approx(0.050)
        assert found.phases["kv_transfer_s"] == pytest.approx(0.110)
        assert_sums(found)


def test_a_prefill_within_the_decode_is_one_request() -> None:
    """A router may ask the decode engine first, which then waits for the prefill engine."""
    waits = decode(at_s=-0.010, queue_s=0.120, queue_held_s=0.115, e2e_s=0.510)
    found = only(joined_requests([waits, prefill()], ROLES))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    assert found.phases["prefill_s"] == pytest.approx(0.050)
    assert found.phases["prefill_queue_s"] == pytest.approx(0.010)
    assert found.e2e_s == pytest.approx(0.510)
    assert_sums(found)


@pytest.mark.parametrize("hours", [-5, 5])
@pytest.mark.parametrize("which", ["prefill", "decode", "router"])
def test_clocks_that_differ_by_hours_change_no_duration(hours: int, which: str) -> None:
    skew_ns = hours * 3600 * S
    rows = [
        prefill(received_unix_ns=START_NS + skew_ns * (which == "prefill")),
        decode(received_unix_ns=START_NS + 120_000_000 + skew_ns * (which == "decode")),
    ]
    report = router(start_s=-0.002 + hours * 3600 * (which == "router"))
    found = only(joined_requests(rows, ROLES, lambda chain: [report]))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    assert found.e2e_s == 0.525
    assert found.phases["prefill_s"] == pytest.approx(0.050)
    assert found.phases["decode_s"] == pytest.approx(0.370)
    assert any(abs(hop.clock_shift_s) > 3600 for hop in found.hops)
    assert_sums(found)


@pytest.mark.parametrize("hours", [-5, 5])
def test_without_a_router_the_time_between_different_clocks_is_not_invented(hours: int) -> None:
    late = decode(received_unix_ns=START_NS + hours * 3600 * S)
    found = only(joined_requests([prefill(), late], ROLES))
    assert 0.400 <= found.e2e_s <= 0.501  # between prefill within decode and prefill before it
    assert found.phases["decode_s"] == pytest.approx(0.370)
    assert_sums(found)


@pytest.mark.parametrize("form", ["cmpl-{}-0", "chatcmpl-{}"])
def test_without_a_trace_context_the_request_id_joins(form: str) -> None:
    rows = [prefill(request_id=form.format("y")), decode(request_id=form.format("y"))]
    rows[1] = {**rows[1], "trace_id": "cd" * 16}
    found = only(joined_requests(rows, ROLES))
    assert (found.joined_by, len(found.hops)) == (JoinedBy.REQUEST_ID, 2)
    late = {**rows[1], "received_unix_ns": START_NS + 3600 * S}
    apart = joined_requests([rows[0], late], ROLES)
    assert [len(each.hops) for each in apart] == [1, 1]


def test_the_trace_joins_if_the_proxy_passes_no_request_id() -> None:
    """An agent has several calls in one trace."""
    rows = []
    for number in range(3):
        at_ns = START_NS + number * S
        rows += [
            prefill(2 * number, request_id=f"cmpl-p{number}-0", received_unix_ns=at_ns),
            decode(2 * number + 1, number + 0.120, request_id=f"cmpl-d{number}-0"),
        ]
    random.Random(1).shuffle(rows)
    found = joined_requests(rows, ROLES)
    assert [[hop.row["request_id"] for hop in each.hops] for each in found] == [
        [f"cmpl-p{number}-0", f"cmpl-d{number}-0"] for number in range(3)
    ]


@pytest.mark.parametrize("later", [["prefill"], ["prefill", "aborted decode"]])
def test_hops_after_the_answer_belong_to_the_next_call_of_the_trace(later: list[str]) -> None:
    """The next call may still run, or its client may have left."""
    rows = [
        prefill(1, request_id="cmpl-p1-0"),
        decode(2, request_id="cmpl-d1-0"),
        prefill(3, request_id="cmpl-p2-0", received_unix_ns=START_NS + 60 * S, prefill_s=9.0),
        decode(4, 69.2, request_id="cmpl-d2-0", outcome="abort"),
    ]
    found = joined_requests(rows[: 2 + len(later)], ROLES)
    assert [[hop.row["span_id"] for hop in each.hops] for each in found] == [
        [rows[0]["span_id"], rows[1]["span_id"]],
        [each["span_id"] for each in rows[2 : 2 + len(later)]],
    ]
    assert found[0].ttft_s == pytest.approx(0.155)
    assert found[1].outcome == (None if len(later) == 1 else "abort")


def call(number: int, at_s: float, **last: Any) -> list[Row]:
    """Return the rows of a call whose hops have ids of their own."""
    at_ns = START_NS + round(at_s * S)
    return [
        prefill(2 * number, request_id=f"cmpl-p{number}-0", received_unix_ns=at_ns),
        decode(2 * number + 1, at_s + 0.120, **{"request_id": f"cmpl-d{number}-0", **last}),
    ]


def divided(rows: list[Row]) -> list[list[int]]:
    """Return the numbers of each request's rows."""
    random.Random(1).shuffle(rows)
    return [
        [int(hop.row["span_id"], 16) for hop in each.hops] for each in joined_requests(rows, ROLES)
    ]


def test_a_clients_retry_is_another_request() -> None:
    """A client's retry has the trace id and the prompt of the call that the client gave up."""
    given_up = call(0, 0.0, outcome="abort", output_tokens=3)
    rows = [*given_up, *call(1, 1.0)]
    first, second = joined_requests(rows, ROLES)
    assert (first.outcome, second.outcome) == ("abort", "length")
    assert second.ttft_s == pytest.approx(0.155)
    # the calls after the retry keep their own prefills
    assert divided([*rows, *call(2, 2.0), *call(3, 3.0)]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    # the client gave up during the prefill
    early = prefill(0, request_id="cmpl-p0-0", outcome="abort")
    assert divided([early, *call(1, 1.0)]) == [[0], [2, 3]]


def test_a_routers_next_attempt_belongs_to_the_request() -> None:
    early = prefill(0, request_id="cmpl-p0-0", outcome="abort")
    given_up = call(0, 0.0, outcome="abort")
    later = call(1, 1.0)
    # the router gave up waiting for a prefill or for a decode, and asks a decode server
    assert divided([early, later[1]]) == [[0, 3]]
    assert divided([*given_up, later[1]]) == [[0, 1, 3]]
    # the router passes the client's request id
    assert divided([{**each, "request_id": "cmpl-x-0"} for each in given_up + later]) == [
        [0, 1, 2, 3]
    ]
    # a server failed
    assert divided([*call(0, 0.0, outcome="error"), *later]) == [[0, 1, 2, 3]]
    # a hop was in progress when another was aborted
    assert divided([*given_up, *call(1, 0.5)]) == [[0, 1, 2, 3]]


def test_a_failed_transfer_is_a_prefill_again() -> None:
    failed = decode(cached_tokens=0, external_cached_tokens=0, prefill_s=0.200, e2e_s=0.580)
    found = only(joined_requests([prefill(), failed], ROLES))
    assert [hop.recomputed for hop in found.hops] == [False, True]
    assert found.phases["prefill_s"] == pytest.approx(0.250)
    assert found.phases["decode_s"] == pytest.approx(0.350)
    assert_sums(found)


def test_a_prefill_engine_may_record_its_token_after_the_request_ended() -> None:
    """The router asked both engines at the same time. The decode engine loaded the KV cache before
    the prefill engine, on a busy machine, recorded its token."""
    late = prefill(prefill_s=0.851, ttft_s=0.861, e2e_s=0.944)
    waits: dict[str, Any] = {"queue_s": 0.684, "queue_held_s": 0.684, "kv_load_s": 0.684}
    first = decode(at_s=-0.004, prefill_s=0.016, decode_s=0.060, e2e_s=0.774, **waits)
    report = router(-0.008, 0.786, ttft_s=0.753)
    found = only(joined_requests([late, first], ROLES, lambda chain: [report]))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    assert (found.basis, found.ttft_s) == (JoinedBasis.ROUTER, 0.753)
    assert found.e2e_s == pytest.approx(0.786)
    assert_sums(found)


def test_a_transfer_may_fail_in_part_while_the_decode_engine_waits() -> None:
    """The router asked both engines at the same time, and one block of the KV cache arrived."""
    waits: dict[str, Any] = {"queue_s": 0.120, "queue_held_s": 0.115, "kv_load_s": 0.115}
    kept: dict[str, Any] = {"cached_tokens": 128, "external_cached_tokens": 128}
    failed = decode(at_s=-0.010, prefill_s=0.200, e2e_s=0.690, **waits, **kept)
    found = only(joined_requests([prefill(), failed], ROLES))
    assert [hop.recomputed for hop in found.hops] == [False, True]
    assert found.phases["prefill_s"] == pytest.approx(0.250)
    assert found.phases["decode_s"] == pytest.approx(0.350)
    assert found.e2e_s == pytest.approx(0.690)
    assert_sums(found)


def test_a_routers_time_after_the_only_prefill_is_delivery() -> None:
    """The decode server was killed, and its row is lost."""
    report = router(-0.010, 0.810, ttft_s=None)
    found = only(joined_requests([prefill()], ROLES, lambda chain: [report]))
    assert (found.complete, found.ttft_s) == (False, None)
    assert found.e2e_s == pytest.approx(0.810)
    assert found.phases["delivery_s"] == pytest.approx(0.735)
    assert_sums(found)


def test_a_prefill_without_a_decode_is_incomplete() -> None:
    found = only(joined_requests([prefill()], ROLES))
    assert (found.complete, found.outcome, found.ttft_s) == (False, None, None)
    assert found.phases["decode_s"] is None
    assert found.phases["kv_transfer_s"] is None
    assert_sums(found)
    aborted = only(joined_requests([prefill(outcome="abort")], ROLES))
    assert aborted.outcome == "abort"


def test_a_decode_without_a_prefill_has_no_transfer() -> None:
    """A router sends short prompts to the decode engine alone."""
    short = decode(cached_tokens=0, external_cached_tokens=0, prompt_tokens=20)
    found = only(joined_requests([short], ROLES))
    assert found.phases["prefill_s"] == pytest.approx(0.020)
    assert found.phases["prefill_queue_s"] is None
    assert found.phases["kv_transfer_s"] is None
    assert_sums(found)


def test_retries_belong_to_the_request() -> None:
    failed = prefill(1, outcome="error", prefill_s=0.0, queue_s=0.0, e2e_s=0.010, output_tokens=0)
    again = prefill(2, received_unix_ns=START_NS + 200_000_000)
    found = only(joined_requests([decode(3, 0.320), again, failed], ROLES))
    assert [hop.row["span_id"] for hop in found.hops] == [f"{n:016x}" for n in (1, 2, 3)]
    assert found.e2e_s == pytest.approx(0.720)
    assert found.cost_usd == pytest.approx(0.004)
    assert_sums(found)


def test_roles_of_kv_both_are_derived_from_the_pair() -> None:
    found = only(joined_requests([prefill(), decode()], BOTH))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    one_token = decode(output_tokens=1, cached_tokens=0, external_cached_tokens=0)
    found = only(joined_requests([prefill(), one_token], BOTH))
    assert [hop.role for hop in found.hops] == [EngineRole.PREFILL, EngineRole.DECODE]
    assert joined_requests([prefill()], BOTH) == []  # one engine may do both
    again = {**one_token, "request_id": "cmpl-retried-0"}
    assert joined_requests([prefill(), again], BOTH) == []


def test_requests_of_engines_without_a_connector_are_not_joined() -> None:
    rows = [prefill(), decode(external_cached_tokens=0)]
    assert joined_requests(rows, {}) == []
    assert len(joined_requests([prefill(), decode()], {})) == 1  # the row has a transfer


@pytest.mark.parametrize("name", ["model", "tenant", "prompt_tokens", "lora"])
def test_forged_ids_do_not_join_different_requests(name: str) -> None:
    """A client chooses its trace id and its X-Request-Id."""
    other: Any = 99 if name == "prompt_tokens" else "globex"
    changed: dict[str, Any] = {name: other}
    unknown: dict[str, Any] = {name: None}
    found = joined_requests([prefill(), decode(**changed)], ROLES)
    assert [len(each.hops) for each in found] == [1, 1]
    rows = [prefill(1, **unknown), decode(2), decode(3, **changed)]
    assert max(len(each.hops) for each in joined_requests(rows, ROLES)) == (1 + (name == "lora"))


def test_a_proxy_may_drop_the_tenant() -> None:
    found = only(joined_requests([prefill(tenant=None), decode()], ROLES))
    assert found.label("tenant") == "acme"


def test_thousands_of_rows_of_one_trace_are_each_in_one_request() -> None:
    rows = [prefill(n, received_unix_ns=START_NS + n) for n in range(5_000)] + [decode(10_001)]
    found = joined_requests(rows, ROLES)
    assert sorted(hop.row["span_id"] for each in found for hop in each.hops) == sorted(
        row["span_id"] for row in rows
    )
    assert max(len(each.hops) for each in found) == MAX_HOPS


def test_a_client_that_repeats_its_ids_has_one_request_per_answer() -> None:
    rows = []
    for number in range(1_000):
        rows += [
            prefill(2 * number, received_unix_ns=START_NS + number * S),
            decode(2 * number + 1, number + 0.120),
        ]
    found = joined_requests(rows, ROLES)
    assert [len(each.hops) for each in found] == [2] * 1_000


def test_a_report_that_is_shorter_than_a_hop_is_not_used() -> None:
    found = only(joined_requests([prefill(), decode()], ROLES, lambda chain: [router(e2e_s=0.300)]))
    assert found.basis is JoinedBasis.ENGINES


durations = st.floats(0, 10) | st.none()


@given(
    hops=st.lists(
        st.tuples(
            st.sampled_from(("p", "d")),
            st.integers(-(10**13), 10**13),
            st.tuples(durations, durations, durations, durations, durations),
            st.sampled_from(("stop", "error", "abort", "rejected")),
            st.integers(0, 2_000) | st.none(),
        ),
        min_size=1,
        max_size=12,
    ),
    report=st.tuples(st.integers(-(10**13), 10**13), st.floats(0, 100)) | st.none(),
)
def test_phases_sum_for_any_rows(hops: list[Any], report: tuple[int, float] | None) -> None:
    """No row is lost or repeated, no phase is negative, and the phases sum to the whole."""
    rows = []
    for number, (replica, at_ns, lengths, outcome, cached) in enumerate(hops):
        names = ("frontend_s", "queue_s", "queue_held_s", "prefill_s", "decode_s")
        about = dict(zip(names, lengths, strict=True))
        whole = sum(value or 0.0 for name, value in about.items() if name != "queue_held_s")
        about |= {"e2e_s": whole, "outcome": outcome, "cached_tokens": cached, "replica": replica}
        rows.append(row(number, received_unix_ns=START_NS + at_ns, **about))
    outside = (
        []
        if report is None
        else [Outside(START_NS + report[0], report[1], None, JoinedBasis.CLIENT)]
    )
    found = joined_requests(rows, ROLES, lambda chain: outside)
    spans = [hop.row["span_id"] for each in found for hop in each.hops]
    assert sorted(spans) == sorted(each["span_id"] for each in rows)
    for each in found:
        assert set(each.phases) == set(JOINED_PHASES)
        assert_sums(each)
        assert each.ttft_s is None or 0 <= each.ttft_s <= each.e2e_s


def test_an_id_loses_what_vllm_adds() -> None:
    given = ("cmpl-x-0", "cmpl-x-1", "chatcmpl-x", "chatcmpl-x-0", "x", None)
    assert [base_id(each) for each in given] == ["x", "x-1", "x", "x-0", "x", None]


def test_roles_come_from_the_arguments() -> None:
    def start(replica: str, **arguments: str) -> EngineStart:
        return EngineStart(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=1,
            config="c",
            arguments=starts.written({**arguments}),
        )

    name = "kv_transfer.kv_role"
    found = stated_roles(
        [
            start("a", **{name: "kv_producer"}),
            start("b", **{name: "kv_consumer"}),
            start("c", **{name: "kv_both"}),
            start("d"),
        ]
    )
    assert found["a", 0] is found["a", None] is EngineRole.PREFILL
    assert found["b", 0] is EngineRole.DECODE
    assert found["c", 0] is None
    assert ("d", 0) not in found
