"""Tests that the rows of a prefill and a decode server are one request of a user."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from sqlalchemy import Engine

from store.joined.prefill_engines import known_roles
from store.joined.read import joined_request_of, read_joined
from store.joined.roles import ARGUMENT
from store.joined.user_requests import COLUMNS, user_requests
from store.queries import request_table
from telemetry import starts
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.joined_request import EngineRole, JoinedBasis
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.starts import EngineStart
from telemetry.window import Window
from tests.store.conftest import put
from tests.store.joined.rows import START_NS, S, decode, prefill

WINDOW = Window(START_NS, START_NS + 600 * S)
STATED = {"p": "kv_producer", "d": "kv_consumer"}
BOTH = {"p": "kv_both", "d": "kv_both"}


def pair(number: int, **changes: Any) -> list[RequestTimeline]:
    """The rows of one request: 155 ms to the first byte, 520 ms in total."""
    common: dict[str, Any] = {
        "trace_id": f"{number + 1:032x}",
        "request_id": f"cmpl-{number}-0",
        "outcome": Outcome.LENGTH,
        "source": Source.INSTRUMENTATION,
        "basis": Basis.HTTP,
        **changes,
    }
    at_ns = START_NS + number * S
    first = prefill(2 * number + 1, received_unix_ns=at_ns, streamed=False, **common)
    second = decode(2 * number + 2, **{**common, "received_unix_ns": at_ns + 120_000_000})
    return [RequestTimeline(**first), RequestTimeline(**second)]


def store_rows(engine: Engine, rows: Sequence[RequestTimeline], roles: dict[str, str]) -> None:
    begun = [
        EngineStart(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=START_NS - S,
            config=replica,
            arguments=starts.written({ARGUMENT: role}),
        )
        for replica, role in roles.items()
    ]
    put(engine, *rows, *begun)


def users(engine: Engine, window: Window = WINDOW) -> list[dict[str, Any]]:
    table = request_table(engine, window, columns=COLUMNS)
    roles = known_roles(engine, WINDOW.to_unix_ns)
    found: list[dict[str, Any]] = user_requests(engine, table, roles).to_pylist()
    return found


@pytest.mark.parametrize("roles", [STATED, BOTH])
def test_each_pair_is_one_request_with_the_users_times(
    engine: Engine, roles: dict[str, str]
) -> None:
    store_rows(engine, [row for number in range(5) for row in pair(number)], roles)
    found = users(engine)
    assert len(found) == 5
    for number, each in enumerate(found):
        assert (each["replica"], each["output_tokens"]) == ("d", 32)
        assert each["received_unix_ns"] == START_NS + number * S
        assert each["ttft_s"] == pytest.approx(0.155)
        assert each["e2e_s"] == pytest.approx(0.520)
    assert [each.e2e_s for each in read_joined(engine, WINDOW).requests] == pytest.approx(
        [each["e2e_s"] for each in found]
    )


def test_rows_without_a_partner_keep_their_own_times(engine: Engine) -> None:
    first, second = pair(0)
    failed, _ = pair(1, outcome=Outcome.ERROR)
    direct = pair(2)[1]
    forged = [pair(3, tenant="acme")[0], pair(3, tenant="globex")[1]]
    asked_directly = replace(pair(4)[0], output_tokens=20)
    store_rows(engine, [first, second, failed, direct, *forged, asked_directly], STATED)
    found = {(each["trace_id"], each["span_id"]): each for each in users(engine)}
    kept = [second, failed, direct, forged[1], asked_directly]
    assert {(each.trace_id, each.span_id) for each in kept} == found.keys()
    times = [found[each.trace_id, each.span_id]["e2e_s"] for each in kept]
    assert times == pytest.approx([0.520, 0.100, 0.400, 0.400, 0.100])


def test_failed_attempts_belong_to_the_request_that_was_answered(engine: Engine) -> None:
    first, second = pair(0)
    failed_prefill = replace(
        first,
        span_id="e" * 16,
        received_unix_ns=first.received_unix_ns - 200_000_000,
        outcome=Outcome.ERROR,
    )
    failed_decode = replace(
        second,
        span_id="f" * 16,
        received_unix_ns=second.received_unix_ns - 1_000_000,
        e2e_s=0.1,
        ttft_s=None,
        decode_s=0.05,
        outcome=Outcome.ERROR,
    )
    store_rows(engine, [failed_prefill, first, failed_decode, second], STATED)
    (found,) = users(engine)
    assert found["span_id"] == second.span_id
    assert found["e2e_s"] == pytest.approx(0.720)


def test_a_prefill_before_the_range_belongs_to_its_decode_in_the_range(engine: Engine) -> None:
    store_rows(engine, pair(0), STATED)
    before = Window(START_NS, START_NS + 100_000_000)
    after = Window(before.to_unix_ns, WINDOW.to_unix_ns)
    assert users(engine, before) == []
    (found,) = users(engine, after)
    assert found["ttft_s"] == pytest.approx(0.155)


def test_without_a_trace_context_the_request_id_joins(engine: Engine) -> None:
    first, second = pair(0)
    store_rows(engine, [first, replace(second, trace_id="e" * 32)], STATED)
    (found,) = users(engine)
    assert found["ttft_s"] == pytest.approx(0.155)


def test_two_calls_of_a_trace_stay_apart_when_they_are_counted_apart(engine: Engine) -> None:
    """A router that passes on only `traceparent` gives each row its own request id."""
    rows = []
    for number in (0, 60):
        first, second = pair(number, trace_id="a" * 32)
        rows += [first, replace(second, request_id=f"cmpl-decode-{number}-0")]
    store_rows(engine, rows, STATED)
    for number in (0, 60):
        at_ns = START_NS + number * S
        (found,) = users(engine, Window(at_ns, at_ns + 30 * S))
        assert found["received_unix_ns"] == at_ns
        assert found["ttft_s"] == pytest.approx(0.155)


def test_a_native_span_of_the_same_hop_takes_no_prefill(engine: Engine) -> None:
    rows = pair(0)
    native = [
        replace(each, span_id=f"{number:016x}", source=Source.NATIVE, e2e_s=each.e2e_s - 0.001)
        for number, each in enumerate(rows, 100)
    ]
    store_rows(engine, [*rows, *native], STATED)
    (found,) = users(engine)
    assert (found["span_id"], found["ttft_s"]) == (rows[1].span_id, pytest.approx(0.155))


@pytest.mark.parametrize("form", ["{}", "chatcmpl-{}", "cmpl-{}", "cmpl-{}-0"])
@pytest.mark.parametrize("roles", [STATED, BOTH])
def test_the_request_id_joins_without_the_prefix_of_the_api(
    engine: Engine, roles: dict[str, str], form: str
) -> None:
    first, second = pair(0)
    first = replace(first, request_id=form.format("x"))
    second = replace(second, trace_id="e" * 32, request_id="chatcmpl-x")
    store_rows(engine, [first, second], roles)
    (found,) = users(engine)
    assert found["ttft_s"] == pytest.approx(0.155)
    for each in (first, second):
        joined = joined_request_of(engine, asdict(each))
        assert joined is not None
        assert [hop.row["span_id"] for hop in joined.hops] == [first.span_id, second.span_id]


@pytest.mark.parametrize(
    "loaded", [0, 1_408], ids=["no server loads a cache", "the server also decodes"]
)
def test_a_server_of_one_token_answers_that_only_offloads_is_no_prefill_server(
    engine: Engine, loaded: int
) -> None:
    rows = [pair(number)[0] for number in range(3)]
    if loaded:
        rows += [pair(0)[1], replace(pair(3)[1], replica="p")]
    store_rows(engine, rows, BOTH)
    assert EngineRole.PREFILL not in known_roles(engine, WINDOW.to_unix_ns).values()
    assert len(users(engine)) == len(rows)


def test_without_a_connector_nothing_changes(engine: Engine) -> None:
    store_rows(engine, pair(0), {})
    assert known_roles(engine, WINDOW.to_unix_ns) == {}
    assert len(users(engine)) == 2


@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_range_has_the_requests_of_a_router_with_a_wrong_clock(
    engine: Engine, minutes: int
) -> None:
    rows = pair(0)
    store_rows(engine, rows, STATED)
    report = ApplicationOperation(
        trace_id=rows[0].trace_id,
        span_id="e" * 16,
        at_unix_ns=START_NS - 2_000_000 + minutes * 60 * S,
        operation=Operation.ROUTER,
        length_s=0.525,
        process="router",
    )
    put(engine, report)
    windows = [
        Window(START_NS + first * S, START_NS + last * S)
        for first, last in ((-300, -1), (-1, 60), (60, 300))
    ]
    before, here, after = (read_joined(engine, each).requests for each in windows)
    assert [(each.basis, each.e2e_s) for each in here] == [(JoinedBasis.ROUTER, 0.525)]
    assert not before
    assert not after
