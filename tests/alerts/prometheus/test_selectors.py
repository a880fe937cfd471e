from collections.abc import Callable, Iterator

import promql_parser as promql
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts.errors import ExpressionError
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.selectors import matched, read_selector

Make = Callable[..., Objective]

SELECTOR = 'env="prod",region=~"eu-.*"'


@pytest.mark.parametrize("make", [tailspan_rules, vllm_rules])
def test_every_series_of_ours_is_matched(objective: Make, make: Callable[..., str]) -> None:
    about = objective(good="ttft_s <= 0.5", where="where: 'model == \"tailspan_x\"'")
    text = make([about], EXPLORER_URL, SELECTOR)
    assert text.splitlines()[1] == f"# Only series with {SELECTOR}"
    found = 0
    for group in yaml.safe_load(text)["groups"]:
        for rule in group["rules"]:
            for series in selectors_of(promql.parse(rule["expr"])):
                ours = str(series.name).startswith(("tailspan_", "vllm:"))
                labels = {each.name for each in series.matchers.matchers}
                assert ({"env", "region"} <= labels) is ours
                found += ours
    assert found > 20
    whole = yaml.safe_load(make([about], EXPLORER_URL))
    assert yaml.safe_load(text.replace(f"{{{SELECTOR}}}", "").replace(f"{SELECTOR},", "")) == whole


def selectors_of(tree: promql.Expr) -> Iterator[promql.VectorSelector]:
    match tree:
        case promql.VectorSelector():
            yield tree
        case promql.MatrixSelector():
            yield from selectors_of(tree.vector_selector)
        case promql.BinaryExpr():
            yield from selectors_of(tree.lhs)
            yield from selectors_of(tree.rhs)
        case promql.Call():
            for each in tree.args:
                yield from selectors_of(each)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            yield from selectors_of(tree.expr)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('env="prod"', 'env="prod"'),
        (" env = 'prod' , ", 'env="prod"'),
        ('a!="b",c!~"d|e"', 'a!="b",c!~"d|e"'),
        (r'a=~"\\d+"', r'a=~"\\d+"'),
        ('env="prod" # why\n', 'env="prod"'),
    ],
)
def test_matchers_are_written_in_canonical_form(text: str, written: str) -> None:
    assert read_selector(text) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prod",
        "env=prod",
        'env="a"} or y{b="c"',
        'env="a"}[5m',
        'env="a"} offset 5m #',
        'env="a"} @ 0 #',
        'env="a" or b="c"',
        '__name__="y"',
        '"my.label"="a"',
        'env=~"("',
        'env="a\\nb"',
        'env="\x1b[31m"',
        'env="\u2028"',
        'env="' + "a" * 1_000 + '"',
    ],
)
def test_a_selector_with_more_than_matchers_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="allowed"):
        read_selector(text)


@given(st.text(st.sampled_from("ab'\"\\=~!,{}[]#() \n`@") | st.characters(), max_size=20))
def test_any_selector_is_one_selector_or_refused(text: str) -> None:
    for given_text in (text, f"a={text}", f'a="{text}"'):
        try:
            selector = read_selector(given_text)
        except ExpressionError:
            continue
        assert selector.isprintable()
        assert read_selector(selector) == selector
        tree = promql.parse(matched("sum(tailspan_a)", selector))
        assert isinstance(tree, promql.AggregateExpr)
        assert isinstance(tree.expr, promql.VectorSelector)


def test_recorded_series_and_strings_stay_as_they_are() -> None:
    expression = 'sum(slo:tailspan_events:increase5m{slo="tailspan_x"}) + tailspan_a{} + tailspan_b'
    assert matched(expression, 'e="p"') == (
        'sum(slo:tailspan_events:increase5m{slo="tailspan_x"}) + tailspan_a{e="p"}'
        ' + tailspan_b{e="p"}'
    )
    assert matched(expression, "") == expression


def test_foreign_queries_are_unchanged(document: Callable[..., str]) -> None:
    query = "{metricSource: {type: Prometheus, spec: {query: tailspan_requests_total}}}"
    text = document().split("ratioMetric")[0]
    text += f"ratioMetric: {{total: {query}, good: {query}}}}}}}\n"
    findings = inspect_texts({"a.yaml": text})
    assert not findings.errors
    made = tailspan_rules(findings.spec.objectives, EXPLORER_URL, SELECTOR)
    assert yaml.safe_load(made) == yaml.safe_load(
        tailspan_rules(findings.spec.objectives, EXPLORER_URL)
    )
