"""Any SLO file, even a hostile one, gives valid PromQL rules, or an error with file and line."""

import re
from typing import Any, Final

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alerts.errors import DocumentError
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from alerts.prometheus.promql import check

FILE: Final = "a.yaml"

VALUES: Final = (
    *("", "~", "null", "true", "0", "-1", "0.99", "99.9", "1e9", ".nan", ".inf", "0x10", "1_000"),
    *("7d", "30d", "1h", "5m", "1m", "999999w", "{{ $value }}", "{{.window}}", "{{", "'", '"', "#"),
    *("[]", "{}", "\ud800", "\x00", "\x1b[31m", "a\nb", "\u202e", "ü", "😀", "a" * 300, "-", "a-b"),
    *("page", "ticket", "Prometheus", "tailspan", "burnrate", "success", "failure", "all"),
    *(
        "x",
        "sum(x)",
        "count(x)",
        "rate(x[{{.window}}])",
        "x[5m]",
        "x{a=`\\d`}",
        "1 / 0",
        "((",
        "x #",
    ),
    "sum(rate(x{a='}'}[{{ .window }}])) # why",
    "1 - sum(sum_over_time(x[{{.window}}])) / sum(count_over_time(x[{{.window}}]))",
)
KEYS: Final = (
    *("bad", "good", "total", "raw", "rawType", "counter", "labels", "annotations", "name"),
    *("indicator", "indicatorRef", "description", "displayName", "a.b", "a_b", "slo", "1", ""),
)


PLAIN: Final = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: web, labels: {team: a}, annotations: {runbook: b}}
spec:
  service: web
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: "0.99"}, {target: "0.95"}]
  indicator:
    metadata: {name: errors}
    spec:
      ratioMetric:
        counter: true
        bad: {metricSource: {type: Prometheus, spec: {query: x}}}
        total: {metricSource: {type: Prometheus, spec: {query: y}}}
  alertPolicies:
  - kind: AlertPolicy
    metadata: {name: own}
    spec:
      conditions:
      - kind: AlertCondition
        metadata: {name: c}
        spec:
          severity: page
          condition:
            {kind: burnrate, op: gt, threshold: "12", lookbackWindow: 2h, alertAfter: 10m}
"""


def plain() -> Any:
    return yaml.safe_load(PLAIN)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def dumped(document: Any, *, unicode: bool = False) -> str:
    return yaml.dump(document, Dumper=_Dumper, allow_unicode=unicode)


Place = tuple[Any, Any]


def places(node: Any) -> list[Place]:
    """Yield the position of every value in a document: its container, and its key or index."""
    keys: list[Any] = []
    if isinstance(node, dict):
        keys = list(node)
    elif isinstance(node, list):
        keys = list(range(len(node)))
    return [place for key in keys for place in ((node, key), *places(node[key]))]


def rules_of(objective: Objective) -> list[dict[str, Any]]:
    text = tailspan_rules([objective], EXPLORER_URL)
    text.encode()
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def held(text: str) -> int:
    """Check the rules or errors that a text gives, and return the number of objectives."""
    findings = inspect_texts({FILE: text})
    for error in findings.errors:
        assert isinstance(error, DocumentError)
        assert re.match(r"a\.yaml:[0-9]+: ", str(error))
        str(error).encode()
    for objective in findings.spec.objectives:
        rules = rules_of(objective)
        for rule in rules:
            check(rule["expr"])
        recorded = [rule["record"] for rule in rules if "record" in rule]
        assert len(recorded) == len(set(recorded))
    return len(findings.spec.objectives)


@settings(deadline=None)
@given(st.data())
def test_a_document_with_hostile_values_makes_valid_rules_or_is_refused(
    data: st.DataObject,
) -> None:
    document = plain()
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(document)))
        value = data.draw(
            st.sampled_from(VALUES)
            | st.text(max_size=8)
            | st.lists(st.sampled_from(VALUES), max_size=2)
            | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)
        )
        match data.draw(st.sampled_from(["replace", "remove", "add", "double"])):
            case "replace":
                holder[key] = value
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[data.draw(st.sampled_from(KEYS))] = value
            case _ if isinstance(holder, list):
                holder.append(holder[key])
    held(dumped(document, unicode=data.draw(st.booleans())))


PIECES: Final = st.sampled_from(
    [
        *("x", "y{a='b'}", "[{{.window}}]", "[{{ .window }}:1m]", "[5m]", "rate(", "increase("),
        *("sum(", "sum by (a) (", "count(", "sum_over_time(", "count_over_time(", "scalar(", ")"),
        *(" + ", " - ", " / ", " or ", " unless on () ", " > ", " @ 0", " offset 5m", "#", "\n"),
        *("1", "vector(1)", "time()", "histogram_quantile(0.9, ", "topk(2, ", "'", '"', "`", "{"),
        *("rate(x[{{.window}}])", "sum(increase(y[{{.window}}]))", "clamp_min(", ", 0)", "\\", "}"),
    ]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join), st.booleans())
@example("scalar(rate(x[{{.window}}]))", True)
@example("x{a='{{.window}}'}", True)
@example("sum(x{p=~`\\d+`})", True)
def test_any_query_makes_valid_rules_or_is_refused(query: str, counter: bool) -> None:
    document = plain()
    ratio = document["spec"]["indicator"]["spec"]["ratioMetric"]
    ratio["bad"]["metricSource"]["spec"]["query"] = query
    ratio["counter"] = counter
    held(dumped(document))


def test_the_document_that_is_altered_is_accepted() -> None:
    """If this document were refused, the tests above would only test refusals."""
    assert held(dumped(plain())) == 2


@pytest.mark.parametrize("escape", ["\\ud800", "\\0", "\\e[31m", "\\r", "\\x9b"])
def test_a_character_that_acts_on_terminals_or_is_no_unicode_is_refused(escape: str) -> None:
    """The YAML file can contain these characters only as escapes."""
    document = plain()
    document["spec"]["service"] = "HERE"
    text = dumped(document).replace("HERE", f'"a{escape}b"')
    (error,) = inspect_texts({FILE: text}).errors
    assert "a text with the character U+" in str(error)


def test_an_error_is_one_line_whatever_the_key_is() -> None:
    (error,) = inspect_texts({FILE: '"a\\nb": 1\n'}).errors
    assert "\n" not in str(error)
    (error,) = inspect_texts({FILE: f"? {'a' * 10_000}\n: 1\n"}).errors
    assert len(str(error)) < 300


def test_a_label_and_the_service_are_no_templates() -> None:
    """Prometheus expands templates in labels. An alert with changing labels never fires."""
    document = plain()
    document["spec"]["service"] = "{{ $value }}"
    document["metadata"]["labels"] = {"team": "{{ $value }}"}
    (first, *_) = inspect_texts({FILE: dumped(document)}).spec.objectives
    alerts = [rule for rule in rules_of(first) if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["labels"]["team"] == '{{ "{" }}{{ "{" }} $value }}'
        assert rule["labels"]["service"] == '{{ "{" }}{{ "{" }} $value }}'


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        ({"labels": {"reason": "x"}}, "'reason' is set by the rules"),
        ({"labels": {"alertstate": "x"}}, "'alertstate' is set by the rules"),
        ({"annotations": {"summary": "x"}}, "'summary' is set by the rules"),
        (
            {"annotations": {"a.b": "x", "a_b": "y"}},
            "another annotation has the same name in Prometheus, a_b",
        ),
    ],
)
def test_a_label_or_annotation_that_would_be_lost_is_refused(
    metadata: dict[str, Any], wanted: str
) -> None:
    document = plain()
    document["metadata"] = {"name": "web", **metadata}
    (error,) = inspect_texts({FILE: dumped(document)}).errors
    assert wanted in str(error)


def conditions(*more: dict[str, str]) -> str:
    document = plain()
    document["spec"]["objectives"] = [{"target": "0.99"}]
    (policy,) = document["spec"]["alertPolicies"]
    (first,) = policy["spec"]["conditions"]
    for each in more:
        condition = {**first["spec"]["condition"], **each}
        severity = condition.pop("severity", "page")
        policy["spec"]["conditions"].append(
            {**first, "spec": {"severity": severity, "condition": condition}}
        )
    return dumped(document)


def test_a_page_and_a_ticket_on_one_long_window_alert_separately() -> None:
    text = conditions({"severity": "ticket", "threshold": "2", "alertAfter": "20m"})
    assert held(text) == 1
    (objective,) = inspect_texts({FILE: text}).spec.objectives
    burns = [rule for rule in rules_of(objective) if rule.get("alert") == "TailspanBudgetBurn"]
    assert [rule["expr"].strip() for rule in burns] == [
        'slo:tailspan_alerting_burn:ratio2h_10m_page{slo="web"}',
        'slo:tailspan_alerting_burn:ratio2h_20m_ticket{slo="web"}',
    ]


def test_of_two_thresholds_on_the_same_windows_the_lower_decides() -> None:
    text = conditions({"threshold": "3"})
    assert held(text) == 1
    (objective,) = inspect_texts({FILE: text}).spec.objectives
    (pair,) = objective.policy.pairs
    assert pair.factor == 3


@pytest.mark.parametrize("window", ["30d", "999999w"])
def test_a_condition_looks_back_less_than_the_period(window: str) -> None:
    """The series of such a window would have the same name as the series of the period's counts."""
    (error,) = inspect_texts({FILE: conditions({"lookbackWindow": window})}).errors
    assert "allowed: shorter than the period, 30d" in str(error)
