"""Good, bad, or left out: request by request, and by whole tables alike."""

from collections.abc import Callable
from dataclasses import asdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.expression import And, Comparison, Expression, IsUnknown, Not, Or, parse
from alerts.fields import GOOD, WHERE
from alerts.judging import Verdict, judge, selects
from alerts.judging_tables import NOT_SELECTED, VERDICTS, judge_table
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

Make = Callable[..., RequestTimeline]

GOODPUT = parse("ttft_s <= 0.5 and tpot_s <= 0.05", GOOD)


def test_a_request_must_keep_both_halves_of_a_joint_promise(request_row: Make) -> None:
    """Goodput is of the same request, not a product of two margins."""
    assert judge(GOODPUT, request_row()) is Verdict.GOOD
    assert judge(GOODPUT, request_row(ttft_s=0.51)) is Verdict.BAD
    assert judge(GOODPUT, request_row(decode_s=1.01)) is Verdict.BAD


@pytest.mark.parametrize("threshold", ["0.1", "0.3", "0.5", "0.7", "1.1"])
def test_exactly_on_the_threshold_is_kept(request_row: Make, threshold: str) -> None:
    """A measured tenth of a second is the tenth that was promised."""
    good = parse(f"ttft_s <= {threshold}", GOOD)
    assert judge(good, request_row(ttft_s=float(threshold))) is Verdict.GOOD


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"outcome": Outcome.ERROR}, Verdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 503}, Verdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 429}, Verdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": None}, Verdict.BAD),
        ({"outcome": Outcome.REJECTED, "http_status": 400}, Verdict.CLIENT_ERROR),
        ({"outcome": Outcome.REJECTED, "http_status": 404}, Verdict.CLIENT_ERROR),
        ({"ttft_s": None, "streamed": False}, Verdict.UNKNOWN),
        ({"ttft_s": None, "decode_s": 5.0}, Verdict.BAD),
    ],
)
def test_failures_are_bad_and_a_clients_own_are_not(
    request_row: Make, about: dict[str, object], verdict: Verdict
) -> None:
    """Latency does not excuse an error; unknown is neither, unless the rest decides."""
    assert judge(GOODPUT, request_row(**about)) is verdict


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"e2e_s": 0.6}, Verdict.BAD),
        ({"e2e_s": 0.4}, Verdict.ABORTED),
        ({"e2e_s": 0.5}, Verdict.ABORTED),
        ({"e2e_s": 9.0, "ttft_s": 0.2, "output_tokens": 50, "decode_s": 1.0}, Verdict.ABORTED),
        ({"e2e_s": 9.0, "ttft_s": 0.7, "output_tokens": 50, "decode_s": 1.0}, Verdict.BAD),
        ({"e2e_s": 9.0, "ttft_s": 0.2, "output_tokens": 50, "decode_s": 5.0}, Verdict.BAD),
    ],
)
def test_who_left_after_the_threshold_was_let_down_and_who_left_before_is_not_counted(
    request_row: Make, about: dict[str, object], verdict: Verdict
) -> None:
    """An impatient user's leaving is the symptom, not a reason to look away."""
    nothing_yet = {"outcome": Outcome.ABORT, "ttft_s": None, "output_tokens": 0, "decode_s": None}
    assert judge(GOODPUT, request_row(**{**nothing_yet, **about})) is verdict


def test_an_answer_of_one_token_has_no_gap_that_was_too_long(request_row: Make) -> None:
    """TPOT is undefined there, which breaks no promise about it."""
    one = request_row(output_tokens=1, decode_s=None, itl_max_s=None)
    assert judge(GOODPUT, one) is Verdict.GOOD
    assert judge(parse("not (tpot_s > 0.05)", GOOD), one) is Verdict.GOOD


def test_an_unknown_label_is_neither_equal_nor_different(request_row: Make) -> None:
    """It has a word of its own."""
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
    decode_s=maybe_s,
    itl_max_s=maybe_s,
    queue_s=maybe_s,
    output_tokens=st.none() | st.integers(0, 3),
    http_status=st.none() | st.sampled_from([200, 400, 404, 429, 500, 503]),
    tenant=st.none() | st.sampled_from(["a", "b"]),
    streamed=st.none() | st.booleans(),
    prompt_tokens=st.none() | st.integers(0, 3),
)
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def nested(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Any expression over these."""
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
        lambda field, op, value: Comparison(field, op, value, str(value)),
        st.sampled_from(["ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s"]),
        OPERATORS,
        st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    )
    | st.builds(IsUnknown, st.sampled_from(["ttft_s", "tpot_s", "e2e_s", "output_tokens"]))
    | st.just(Comparison("outcome", "==", "stop", '"stop"'))
)
wheres = st.none() | nested(
    st.builds(
        lambda op, value: Comparison("tenant", op, value, f'"{value}"'),
        st.sampled_from(["==", "!="]),
        st.sampled_from(["a", "b"]),
    )
    | st.builds(lambda op, n: Comparison("prompt_tokens", op, n, str(n)), OPERATORS, st.just(1))
    | st.just(Comparison("streamed", "==", True, "true"))
    | st.just(IsUnknown("tenant"))
)
TYPES = {
    "ttft_s": pa.float64(),
    "tpot_s": pa.float64(),
    "itl_max_s": pa.float64(),
    "e2e_s": pa.float64(),
    "queue_s": pa.float64(),
    "output_tokens": pa.int64(),
    "http_status": pa.int64(),
    "prompt_tokens": pa.int64(),
    "tenant": pa.string(),
    "outcome": pa.string(),
    "streamed": pa.bool_(),
}


@given(wheres, goods, st.lists(rows, min_size=1, max_size=6))
def test_a_table_is_judged_as_its_requests_are(
    where: Expression | None, good: Expression, requests: list[RequestTimeline]
) -> None:
    """What is counted as it comes in equals what is recounted from the store."""
    dicts = [{**asdict(each), "tpot_s": each.tpot_s} for each in requests]
    table = pa.table({name: pa.array([d[name] for d in dicts], t) for name, t in TYPES.items()})
    alone = [
        VERDICTS.index(judge(good, each)) if selects(where, each) else NOT_SELECTED
        for each in requests
    ]
    assert judge_table(where, good, table).tolist() == alone
