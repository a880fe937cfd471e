import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alerts.errors import ExpressionError
from alerts.objectives import QueryRatio, RawRatio
from alerts.prometheus.promql import MAX_PARTS, check, read_query, read_ratio
from alerts.prometheus.query_indicators import Queries, Seconds

SLOTH = [
    'sum(rate(http_request_duration_seconds_count{job="myservice",code=~"(5..|429)"}[{{.window}}]))',
    'sum(rate(http_request_duration_seconds_count{job="myservice"}[{{.window}}]))',
    "sum_over_time((count(unifipoller_client_satisfaction_ratio < 0.75))[{{.window}}:])"
    " OR on() vector(0)",
    "sum_over_time((count(unifipoller_client_satisfaction_ratio))[{{.window}}:])",
    'sum(rate(apiserver_request_total{code=~"(5..|429)"}[{{.window}}]))',
    """(
      sum(rate(apiserver_request_duration_seconds_count{verb!="WATCH"}[{{.window}}]))
      -
      sum(rate(apiserver_request_duration_seconds_bucket{le="0.4",verb!="WATCH"}[{{.window}}]))
    )""",
    'sum(rate(apiserver_request_duration_seconds_bucket{le="5",verb!="WATCH"}[{{.window}}]))',
]
"""Error and total queries from the examples of slok/sloth (examples/*.yml)."""


@pytest.mark.parametrize("text", SLOTH)
def test_the_queries_of_sloths_examples_are_counted(text: str) -> None:
    query = read_query(text)
    counted = Queries(QueryRatio(query, query, part_is_bad=False), "web")
    for window in ("5m", "3d"):
        check(counted.bad(window))
        assert f"[{window}" in counted.events(window)
    assert query.per_second is ("rate(" in text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(rate(x[{{.window}}])", "Prometheus would reject it: unclosed left parenthesis"),
        ("rate(x)", "expected type matrix"),
        ("sum(5)", "expected type vector"),
        ("frate(x[{{.window}}])", "unknown function"),
        ("irate(x[{{.window}}])", r"irate\(\) does not count events"),
        ("rate(x[{{.window}}]) + rate(y[5m])", "always covers 0:05:00 .* instead of the window"),
        ("rate(x[{{.window}}]) + increase(y[{{.window}}])", "mixes rate and increase"),
        ("x[{{.window}}]", "a range is not inside a function that counts"),
        ("x + y", "it does not count events over a window"),
        ("scalar(sum(rate(x[{{.window}}])))", "expected type vector"),
        ("rate(x[{{.window}}] @ 0)", "@ fixes the instant"),
        ("rate(x[{{.window}}] offset {{.window}})", "outside a range"),
        ("rate(x[{{.window}}:{{.window}}])", "outside a range"),
        ("rate(x[{{.window}}]) / {{.window}}", "outside a range"),
        ('x{a="{{.window}}"}', "outside a range"),
        (
            "histogram_quantile(0.9, sum by (le) (rate(x_bucket[{{.window}}])))",
            r"the result of histogram_quantile\(\) is not a number of events; allowed: abs",
        ),
        (
            "count(rate(x[{{.window}}]))",
            r"the result of count\(\) is not a number of events; allowed: sum",
        ),
        ("(sum(rate(x[{{.window}}])) / sum(rate(y[{{.window}}])))", "a ratio and not a count"),
        ("", "Prometheus would reject it"),
        ("x" * 10_001, "a query of 10,001 characters; allowed: at most 10,000"),
        ("(" * 4_000 + "x" + ")" * 4_000, "4,000 brackets and operators; allowed: at most 150"),
        ("-" * 9_000 + "x", "9,000 brackets and operators; allowed: at most 150"),
        ("x" + "^x" * 4_000, "4,000 brackets and operators; allowed: at most 150"),
        ("x" + " or x" * 1_500, "1,500 brackets and operators; allowed: at most 150"),
    ],
)
def test_an_unsupported_query_is_refused_with_the_reason(text: str, wanted: str) -> None:
    """Without limits, some texts would crash a recursive parser."""
    with pytest.raises(ExpressionError, match=wanted):
        read_query(text)


def test_the_most_brackets_that_are_allowed_are_parsed() -> None:
    depth = MAX_PARTS - 1
    assert read_query(f"{'(' * (depth - 3)}rate(x[{{{{.window}}}}]){')' * (depth - 3)}").per_second


@pytest.mark.parametrize(
    "text", ["x{code=~'5..'}", "x{code=~`5\\d`}", "sum(x{code=~'5..'})", "sum(x{a='}'}) # why"]
)
def test_a_counter_gets_its_range(text: str) -> None:
    query = read_query(text)
    assert re.fullmatch(r"sum\(increase\(x\{.*\}\[\{\{\.window\}\}\]\)\)", query.text)
    check(query.over("5m"))


def test_the_window_may_be_written_as_any_go_template() -> None:
    assert read_query("sum(rate(x[{{ .window }}]))") == read_query("sum(rate(x[{{.window}}]))")


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("probe_success", "sum(sum_over_time(probe_success[5m]))"),
        ("sum(up{job='a'})", 'sum(sum_over_time(up{job="a"}[5m]))'),
        ("count(up)", "sum(count_over_time(up[5m]))"),
        ("sum(rate(x[{{.window}}]))", "sum(rate(x[5m]))"),
        ("sum(count_over_time(up[{{.window}}]))", "sum(count_over_time(up[5m]))"),
    ],
)
def test_a_gauge_is_added_up_sample_by_sample(text: str, counted: str) -> None:
    query = read_query(text, gauges=True)
    assert query.over("5m") == counted
    check(query.over("5m"))


@pytest.mark.parametrize(
    ("text", "gauges", "wanted"),
    [
        (
            "avg(up)",
            True,
            "does not count events over a window; allowed: a gauge .*, its sum, its count",
        ),
        ("sum by (job) (up)", True, "allowed: a gauge"),
        ("max_over_time(up[{{.window}}])", True, r"max_over_time\(\) does not .*a gauge"),
        ("count(x)", False, "count of a counter does not count events; allowed: a counter"),
    ],
)
def test_a_function_that_does_not_count_a_gauge_is_refused(
    text: str, gauges: bool, wanted: str
) -> None:
    with pytest.raises(ExpressionError, match=wanted):
        read_query(text, gauges=gauges)


OPENSLOS_RATIO = "1 - (sum(sum_over_time(x[{{.window}}])) / sum(count_over_time(x[{{.window}}])))"


@pytest.mark.parametrize(
    "text",
    [
        OPENSLOS_RATIO,
        "avg(avg_over_time(up[{{.window}}])) # why",
        "sum(rate(a[{{.window}}])) / sum(rate(b[{{.window}}])) or vector(0)",
        "clamp_max(sum(increase(a[{{.window}}])) / 100, 1)",
    ],
)
@pytest.mark.parametrize("bad", [True, False])
def test_a_ratio_is_counted_by_seconds(text: str, bad: bool) -> None:
    counted = Seconds(RawRatio(read_ratio(text), is_bad=bad))
    for expression in (counted.present, counted.events("1h"), counted.bad("1h")):
        check(expression)
    assert counted.events("1h").endswith("+ 3600")
    assert ("(1 - (" in counted.bad("1h")) is not bad


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x", "it has no range over the window"),
        (
            "avg_over_time(up[{{.window}}])",
            "several series, and the mean of their ratios is not the total ratio",
        ),
        ("sum by (job) (rate(x[{{.window}}]))", "several series"),
        ("sum(rate(x[{{.window}}])) / sum(x)", "x is the value at an instant"),
        ("sum(rate(x[5m])) / sum(rate(y[{{.window}}]))", "always covers 0:05:00"),
        ("sum(rate(x[{{.window}}])) / sum(increase(y[{{.window}}]))", "mixes rate and increase"),
        ("sum(max_over_time(x[{{.window}}]))", r"max_over_time\(\) does not count"),
        ("scalar(sum(rate(x[{{.window}}])))", "Prometheus would reject it"),
        ("topk(1, rate(x[{{.window}}]))", "several series"),
    ],
)
def test_a_query_that_is_not_a_single_ratio_over_the_window_is_refused(
    text: str, wanted: str
) -> None:
    with pytest.raises(ExpressionError, match=wanted):
        read_ratio(text)


OPERANDS = st.sampled_from(
    ["sum(rate(a[{{.window}}]))", "rate(b{c='#'}[{{.window}}])", "vector(0)", "2"]
)
OPERATORS = st.sampled_from([" + ", " - ", " * ", " or ", " or on() ", "\n> ", " unless "])


@given(st.lists(st.tuples(OPERATORS, OPERANDS), max_size=6), st.booleans())
@example([(" or ", "vector(0)")], True)
def test_a_querys_operators_are_enclosed_in_parentheses(
    rest: list[tuple[str, str]], comment: bool
) -> None:
    text = "sum(rate(a[{{.window}}]))" + "".join(f"{sign}{each}" for sign, each in rest)
    try:
        query = read_query(text + (" # the end" if comment else ""))
    except ExpressionError:
        return  # for example a set operator on a scalar
    for bad in (True, False):
        counted = Queries(QueryRatio(query, query, part_is_bad=bad), "web")
        whole = f"sum(\n{query.over('1h')}\n) * 3600"
        assert counted.events("1h") == whole
        assert whole in counted.bad("1h")
        check(counted.bad("1h"))
