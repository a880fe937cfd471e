import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.errors import ExpressionError
from alerts.expression import (
    And,
    Expression,
    FieldComparison,
    IsUnknown,
    Not,
    Or,
    Vocabulary,
    conjuncts,
    parse,
    render,
)
from alerts.fields import GOOD, WHERE

WORDS = Vocabulary(
    {"tenant": str, "ttft_s": float, "tokens": int, "streamed": bool}, {}, {"wrong": "is elsewhere"}
)

leaves = st.one_of(
    st.builds(
        lambda op, n: FieldComparison("ttft_s", op, float(n), n),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True, alphabet="0123456789."),
    ),
    st.builds(lambda n: FieldComparison("tokens", ">=", n, str(n)), st.integers(0, 10**18 - 1)),
    st.builds(
        lambda text: FieldComparison(
            "tenant", "==", text, '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        ),
        st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=20),
    ),
    st.just(IsUnknown("tenant")),
    st.just(FieldComparison("streamed", "==", True, "true")),
)


def _flat(kind: type[And] | type[Or], operands: list[Expression]) -> Expression:
    return kind(tuple(operands))


expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda each: _flat(And, each), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda each: _flat(Or, each), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)


@given(expressions)
def test_parse_undoes_render(expression: Expression) -> None:
    assert parse(render(expression), WORDS) == expression


def test_and_binds_before_or_and_not_before_both() -> None:
    a, b = IsUnknown("tenant"), IsUnknown("tokens")
    assert parse("tenant is unknown or not tokens is unknown and tenant is unknown", WORDS) == Or(
        (a, And((Not(b), a)))
    )


def test_in_is_short_for_or() -> None:
    either = Or(
        (FieldComparison("tenant", "==", "a", '"a"'), FieldComparison("tenant", "==", "b", '"b"'))
    )
    assert parse("tenant in ('a', \"b\")", WORDS) == either
    assert parse("tenant not in ('a', \"b\")", WORDS) == Not(either)


def test_conjuncts_are_the_operands_of_the_outermost_and() -> None:
    assert len(conjuncts(parse("ttft_s < 1 and tokens > 2", WORDS))) == 2
    assert len(conjuncts(parse("ttft_s < 1 or tokens > 2", WORDS))) == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "the end at character 1; allowed here: a field: tenant, ttft_s"),
        ("ttft_s", "allowed here: <, <=, >, >=, ==, !=, in, or is, after ttft_s"),
        ("ttft_s <= ", "allowed here: a number"),
        ("ttft_s = 1", r"write == to compare"),
        ("ttft_s <= 0.5 tokens > 1", 'at character 15; allowed here: "and", "or", or the end'),
        ("ttft_s <= 500ms", "is not part of an expression"),
        ("ttft_s <= '0.5'", "allowed here: a number"),
        ("ttft_s <= 1e999", "allowed here: a number"),
        ("ttft_s <= -1", "is not part of an expression"),
        ("tenant < 'a'", "allowed here: ==, !=, in, or is, after tenant"),
        ("tenant == acme", "allowed here: a text in quotes"),
        ("tenant == 'a", "is not part of an expression"),
        ("tokens > 1.5", "allowed here: a whole number"),
        ("streamed == 1", "allowed here: true or false"),
        ("nosuch < 1", "'nosuch' at character 1 is not a field; allowed: tenant, ttft_s"),
        ("wrong < 1", "'wrong' at character 1 is elsewhere; allowed"),
        ("__import__('os')", "'__import__' at character 1 is not a field"),
        ("(ttft_s < 1", r"closing \)"),
        ("ttft_s is known", "allowed here: unknown"),
        ("tenant in ()", "allowed here: a text in quotes"),
        ("not " * 50 + "ttft_s < 1", "nested more than 20 deep"),
        ("(" * 5_000, "at most 2,000"),
        ("(" * 1_000, "nested more than 20 deep"),
        ("ttft_s < 1\x00", "is not part of an expression"),
        ("ttft_s < ١", "is not part of an expression"),
    ],
)
def test_an_error_contains_the_position_and_the_allowed_values(text: str, wanted: str) -> None:
    with pytest.raises(ExpressionError, match=wanted):
        parse(text, WORDS)


@given(
    st.text(max_size=100)
    | st.lists(
        st.sampled_from(
            ["ttft_s", "tenant", "<=", "==", "0.5", "'a'", "(", ")", "and", "or", "not", "in", ",",
             "is", "unknown", "true", "streamed"]
        ),
        max_size=15,
    ).map(" ".join)
)  # fmt: skip
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        expression = parse(text, WORDS)
    except ExpressionError:
        return
    assert parse(render(expression), WORDS) == expression


def test_results_cannot_select_requests_and_labels_cannot_judge_them() -> None:
    """An objective that selects only fast requests would always be met."""
    with pytest.raises(ExpressionError, match="use it in good"):
        parse("ttft_s < 1", WHERE)
    with pytest.raises(ExpressionError, match="use it in where"):
        parse("tenant == 'a'", GOOD)


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ExpressionError, match="allowed: stop, length, abort, error, rejected"):
        parse("outcome == 'stopped'", GOOD)
