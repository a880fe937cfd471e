from collections.abc import Callable
from dataclasses import asdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.evaluation.request_verdicts import RequestVerdict, judge, selects
from alerts.evaluation.table_verdicts import (
    NOT_SELECTED,
    VERDICTS,
    columns_of,
    judge_table,
    table_of,
)
from alerts.expression import And, Expression, FieldComparison, IsUnknown, Not, Or, parse
from alerts.fields import DURATIONS, GOOD, WHERE
from telemetry.request_rows import RequestRows
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

Make = Callable[..., RequestTimeline]

GOODPUT = parse("ttft_s <= 0.5 and tpot_s <= 0.05", GOOD)


def test_a_request_must_meet_both_conditions_of_a_joint_objective(request_row: Make) -> None:
    assert judge(GOODPUT, request_row()) is RequestVerdict.GOOD
    assert judge(GOODPUT, request_row(ttft_s=0.51)) is RequestVerdict.BAD
    assert judge(GOODPUT, request_row(decode_s=1.01)) is RequestVerdict.BAD


@pytest.mark.parametrize("threshold", ["0.1", "0.3", "0.5", "0.7", "1.1"])
def test_exactly_on_the_threshold_is_good(request_row: Make, threshold: str) -> None:
    good = parse(f"ttft_s <= {threshold}", GOOD)
    assert judge(good, request_row(ttft_s=float(threshold))) is RequestVerdict.GOOD


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"outcome": Outcome.ERROR}, RequestVerdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 503}, RequestVerdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 429}, RequestVerdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": None}, RequestVerdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 400}, RequestVerdict.CLIENT_ERROR),
        ({"outcome": Outcome.REJECTED, "http_status": 404}, RequestVerdict.CLIENT_ERROR),
        ({"ttft_s": None, "streamed": False}, RequestVerdict.UNKNOWN),
        ({"ttft_s": None, "decode_s": 5.0}, RequestVerdict.BAD),
    ],
)
def test_failures_are_bad_and_client_errors_are_excluded(
    request_row: Make, about: dict[str, object], verdict: RequestVerdict
) -> None:
    assert judge(GOODPUT, request_row(**about)) is verdict


def left(request_row: Make, **about: object) -> RequestTimeline:
    nothing_yet = {
        "outcome": Outcome.ABORT,
        "ttft_s": None,
        "output_tokens": 0,
        "decode_s": None,
        "itl_max_s": None,
    }
    return request_row(**{**nothing_yet, **about})


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"e2e_s": 0.6}, RequestVerdict.BAD),
        ({"e2e_s": 0.4}, RequestVerdict.ABORTED),
        ({"e2e_s": 0.5}, RequestVerdict.ABORTED),
        ({"e2e_s": 0.6, "streamed": False, "output_tokens": 9}, RequestVerdict.BAD),
        ({"e2e_s": 0.4, "streamed": False, "output_tokens": 9}, RequestVerdict.ABORTED),
    ],
)
def test_an_abort_after_the_threshold_is_bad_and_one_before_is_excluded(
    request_row: Make, about: dict[str, object], verdict: RequestVerdict
) -> None:
    assert judge(GOODPUT, left(request_row, **about)) is verdict


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"delivery_s": 0.01}, RequestVerdict.GOOD),
        ({"delivery_s": 0.01, "ttft_s": 0.7}, RequestVerdict.BAD),
        ({"delivery_s": 0.01, "decode_s": 5.0}, RequestVerdict.BAD),
        ({"delivery_s": 7.8}, RequestVerdict.BAD),
        ({"delivery_s": 7.8, "output_tokens": 1, "decode_s": 0.0}, RequestVerdict.BAD),
        ({"delivery_s": 0.04, "output_tokens": 1, "decode_s": 0.0}, RequestVerdict.GOOD),
        ({"delivery_s": 0.0, "output_tokens": 2, "decode_s": 0.09}, RequestVerdict.BAD),
        ({"delivery_s": None}, RequestVerdict.ABORTED),
        ({"delivery_s": None, "decode_s": 5.0}, RequestVerdict.BAD),
    ],
)
def test_an_abort_during_an_answer_is_judged_by_what_was_sent(
    request_row: Make, about: dict[str, object], verdict: RequestVerdict
) -> None:
    begun = {"e2e_s": 9.0, "ttft_s": 0.2, "output_tokens": 50, "decode_s": 1.0}
    assert judge(GOODPUT, left(request_row, **{**begun, **about})) is verdict


@pytest.mark.parametrize(
    ("good", "about", "verdict"),
    [
        ("ttft_s <= 0.5", {"ttft_s": 0.2}, RequestVerdict.GOOD),
        ("e2e_s <= 2", {"e2e_s": 1.9, "ttft_s": 0.2}, RequestVerdict.ABORTED),
        ("e2e_s <= 2", {"e2e_s": 2.1, "ttft_s": 0.2}, RequestVerdict.BAD),
        ("queue_s <= 1", {"queue_s": 0.3}, RequestVerdict.ABORTED),
        ("queue_s <= 1", {"queue_s": 1.3}, RequestVerdict.BAD),
        ("queue_s <= 1", {"queue_s": 0.3, "prefill_s": 0.1}, RequestVerdict.GOOD),
        ("itl_max_s <= 1", {"itl_max_s": 0.1, "output_tokens": 9}, RequestVerdict.ABORTED),
        (
            "itl_max_s <= 1",
            {"itl_max_s": 0.1, "output_tokens": 9, "delivery_s": 0.2},
            RequestVerdict.GOOD,
        ),
        ("itl_max_s <= 1", {"output_tokens": 1, "delivery_s": 1.2}, RequestVerdict.BAD),
        ("decode_s <= 1", {"decode_s": 0.5, "output_tokens": 9}, RequestVerdict.ABORTED),
    ],
)
def test_a_verdict_that_an_abort_cannot_change_is_decided(
    request_row: Make, good: str, about: dict[str, object], verdict: RequestVerdict
) -> None:
    """An abort ends the current phase early, so the phase's recorded duration is a lower bound."""
    assert judge(parse(good, GOOD), left(request_row, **about)) is verdict


def test_users_who_stop_answers_do_not_change_the_bad_ratio(request_row: Make) -> None:
    criterion = parse("ttft_s <= 0.5", GOOD)
    verdicts = [
        judge(criterion, request_row(ttft_s=ttft_s, outcome=outcome))
        for ttft_s in (0.6, *[0.2] * 99)
        for outcome in (Outcome.STOP, Outcome.ABORT)
    ]
    assert verdicts.count(RequestVerdict.BAD) == 2
    assert verdicts.count(RequestVerdict.GOOD) == 198


def test_an_answer_of_one_token_has_no_gap_that_was_too_long(request_row: Make) -> None:
    """TPOT and ITL of a single token are undefined."""
    one = request_row(output_tokens=1, decode_s=None, itl_max_s=None)
    assert judge(GOODPUT, one) is RequestVerdict.GOOD
    assert judge(parse("not (tpot_s > 0.05)", GOOD), one) is RequestVerdict.GOOD


def test_an_unknown_label_is_neither_equal_nor_different(request_row: Make) -> None:
    """Only `is unknown` matches an unknown label."""
    unknown, acme = request_row(tenant=None), request_row(tenant="acme")
    assert not selects(parse("tenant == 'acme'", WHERE), unknown)
    assert not selects(parse("tenant != 'acme'", WHERE), unknown)
    assert selects(parse("tenant is unknown or tenant != 'acme'", WHERE), unknown)
    assert selects(parse("tenant == 'acme'", WHERE), acme)
    assert selects(None, unknown)


maybe_s = st.none() | st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0])
rows = st.builds(
    RequestTimeline,
    trace_id=st.just("1"),
    span_id=st.just("1"),
    request_id=st.none(),
    received_unix_ns=st.just(1),
    e2e_s=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    outcome=st.sampled_from(Outcome),
    source=st.sampled_from(Source),
    basis=st.just(Basis.HTTP),
    ttft_s=maybe_s,
    first_content_s=maybe_s,
    content_tokens=st.none() | st.integers(0, 2),
    decode_s=maybe_s,
    itl_max_s=maybe_s,
    frontend_s=maybe_s,
    queue_s=maybe_s,
    prefill_s=maybe_s,
    delivery_s=maybe_s,
    output_tokens=st.none() | st.integers(0, 3),
    http_status=st.none() | st.sampled_from([200, 400, 404, 429, 500, 503]),
    tenant=st.none() | st.sampled_from(["a", "b"]),
    streamed=st.none() | st.booleans(),
    prompt_tokens=st.none() | st.integers(0, 3),
)
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def nested(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.tuples(inner, inner)),
            st.builds(Or, st.tuples(inner, inner)),
        ),
        max_leaves=5,
    )


goods = nested(
    st.builds(
        lambda field, op, value: FieldComparison(field, op, value, str(value)),
        st.sampled_from(DURATIONS),
        OPERATORS,
        st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    )
    | st.builds(IsUnknown, st.sampled_from(["ttft_s", "tpot_s", "e2e_s", "output_tokens"]))
    | st.just(FieldComparison("outcome", "==", "stop", '"stop"'))
)
wheres = st.none() | nested(
    st.builds(
        lambda op, value: FieldComparison("tenant", op, value, f'"{value}"'),
        st.sampled_from(["==", "!="]),
        st.sampled_from(["a", "b"]),
    )
    | st.builds(
        lambda op, n: FieldComparison("prompt_tokens", op, n, str(n)), OPERATORS, st.just(1)
    )
    | st.just(FieldComparison("streamed", "==", True, "true"))
    | st.just(IsUnknown("tenant"))
)
TYPES = {
    "ttft_s": pa.float64(),
    "first_content_s": pa.float64(),
    "content_tokens": pa.int64(),
    "tpot_s": pa.float64(),
    "itl_max_s": pa.float64(),
    "e2e_s": pa.float64(),
    "queue_s": pa.float64(),
    "frontend_s": pa.float64(),
    "prefill_s": pa.float64(),
    "decode_s": pa.float64(),
    "delivery_s": pa.float64(),
    "output_tokens": pa.int64(),
    "http_status": pa.int64(),
    "prompt_tokens": pa.int64(),
    "tenant": pa.string(),
    "outcome": pa.string(),
    "streamed": pa.bool_(),
}


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"first_content_s": 0.5}, RequestVerdict.GOOD),
        ({"first_content_s": 0.6}, RequestVerdict.BAD),
        # `first_content_s` is unknown if a response has only tool calls, or if the plugin is older.
        ({"content_tokens": 0}, RequestVerdict.UNKNOWN),
        ({}, RequestVerdict.UNKNOWN),
        # The client left before the first content, so it waited at least until then.
        ({"outcome": Outcome.ABORT, "content_tokens": 0}, RequestVerdict.BAD),
        ({"outcome": Outcome.ABORT, "ttft_s": None, "output_tokens": 0}, RequestVerdict.BAD),
        ({"outcome": Outcome.ABORT}, RequestVerdict.ABORTED),
        ({"outcome": Outcome.ABORT, "first_content_s": 0.2}, RequestVerdict.GOOD),
    ],
)
def test_the_first_content_is_judged_like_the_first_byte(
    request_row: Make, about: dict[str, object], verdict: RequestVerdict
) -> None:
    assert judge(parse("first_content_s <= 0.5", GOOD), request_row(**about)) is verdict


@pytest.mark.parametrize(
    ("good", "about", "verdict"),
    [
        ("reasoning_tokens <= 20", {"reasoning_tokens": 20}, RequestVerdict.GOOD),
        ("reasoning_tokens <= 20", {"reasoning_tokens": 21}, RequestVerdict.BAD),
        ("reasoning_tokens <= 20", {}, RequestVerdict.UNKNOWN),
        (
            "content_tokens > 0 or tool_call_tokens > 0",
            {"tool_call_tokens": 3},
            RequestVerdict.GOOD,
        ),
        (
            "content_tokens > 0 or tool_call_tokens > 0",
            {"content_tokens": 0, "tool_call_tokens": 0},
            RequestVerdict.BAD,
        ),
    ],
)
def test_an_objective_may_limit_each_kind_of_tokens(
    request_row: Make, good: str, about: dict[str, object], verdict: RequestVerdict
) -> None:
    expression = parse(good, GOOD)
    request = request_row(**about)
    assert judge(expression, request) is verdict
    table = table_of(RequestRows.of([request]), columns_of(None, expression))
    assert judge_table(None, expression, table).tolist() == [VERDICTS.index(verdict)]


@given(wheres, goods, st.lists(rows, min_size=1, max_size=6))
def test_the_verdicts_of_a_table_equal_those_of_its_rows(
    where: Expression | None, good: Expression, requests: list[RequestTimeline]
) -> None:
    dicts = [{**asdict(each), "tpot_s": each.tpot_s} for each in requests]
    columns = columns_of(where, good)
    table = pa.table({name: pa.array([d[name] for d in dicts], TYPES[name]) for name in columns})
    alone = [
        VERDICTS.index(judge(good, each)) if selects(where, each) else NOT_SELECTED
        for each in requests
    ]
    assert judge_table(where, good, table).tolist() == alone
