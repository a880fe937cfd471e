"""OpenSLO documents: read exactly, or refused with file, line, key, value and what is allowed."""

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.objectives import Goodput, QueryRatio
from alerts.openslo import inspect, inspect_texts, load

Document = Callable[..., str]

ELSEWHERE = """\
apiVersion: openslo/v1
kind: SLI
metadata: {name: http}
spec:
  ratioMetric:
    counter: true
    bad: {metricSource: {type: Prometheus, spec: {query: 'http_requests_total{code=~"5.."}'}}}
    total: {metricSource: {type: Prometheus, spec: {query: sum(http_requests_total)}}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: http, labels: {team: [a, b]}}
spec:
  service: web
  indicatorRef: http
  budgetingMethod: Occurrences
  timeWindow: [{duration: 4w, isRolling: true}]
  objectives: [{displayName: strict, targetPercent: 99.9}, {target: 0.95}]
  alertPolicies: [{alertPolicyRef: wake}]
---
apiVersion: openslo/v1
kind: AlertNotificationTarget
metadata: {name: wake}
spec: {target: slack}
"""


def test_an_objective_is_read_exactly(document: Document) -> None:
    """A target is a fraction; floats would put 0.999's budget a little off a thousandth."""
    (objective,) = inspect_texts({"a.yaml": document(target="0.999")}).spec.objectives
    assert objective.target == Fraction(999, 1000)
    assert objective.budget == Fraction(1, 1000)
    assert objective.target_written == "99.9 %"
    assert objective.period_s == 30 * 86_400
    assert isinstance(objective.indicator, Goodput)


def test_objectives_from_elsewhere_are_read() -> None:
    """A ratio of two Prometheus counters, by reference, with two targets."""
    findings = inspect_texts({"a.yaml": ELSEWHERE})
    assert not findings.errors
    strict, loose = findings.spec.objectives
    assert (strict.name, strict.display_name, loose.name) == ("http-1", "strict", "http-2")
    assert strict.target == Fraction("0.999")
    assert strict.period_s == 28 * 86_400
    indicator = strict.indicator
    assert isinstance(indicator, QueryRatio)
    assert indicator.part_is_bad
    assert indicator.total.over("5m") == "sum(increase(http_requests_total[5m]))"
    assert indicator.part.over("1h") == 'sum(increase(http_requests_total{code=~"5.."}[1h]))'
    assert len(findings.spec.notes) == 2
    assert all("left out" in note for note in findings.spec.notes)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("openslo/v1", "openslo/v2", "a.yaml:1: apiVersion: 'openslo/v2'; allowed: openslo/v1"),
        ("kind: SLO", "kind: Slo", "a.yaml:2: kind: 'Slo'; allowed: SLO, SLI"),
        ("name: chat", "name: Chat", "metadata.name: 'Chat'; allowed: a-z"),
        ("Occurrences", "Timeslices", "a.yaml:6: spec.budgetingMethod: Timeslices is not"),
        ("30d", "30", "spec.timeWindow.0..duration: '30'; allowed: a whole number"),
        ("30d", "1d", "duration: '1d'; allowed: 7d to 366d"),
        ("isRolling: true", "isRolling: false", "calendar periods are not supported"),
        ("isRolling: true", "isRolling: yes", "isRolling: 'yes'; allowed: true, false"),
        ("0.99", "99", "a.yaml:8: spec.objectives.0..target: '99'; allowed: a decimal number"),
        ("0.99", "1", "target: '1'; allowed: a decimal number above 0 and below 1"),
        ("0.99", "0.0", "target: '0.0'; allowed"),
        ("0.99", "-0.5", "target: '-0.5'; allowed"),
        ("0.99", "1e-1", "target: '1e-1'; allowed"),
        ("0.99", ".nan", "target: '.nan'; allowed"),
        ("0.99", "0.99, targetPercent: 99", "give target or targetPercent"),
        ("target: 0.99", "displayName: x", "give target or targetPercent"),
        ("[{target: 0.99}]", "[]", "is empty: at least one target"),
        ("0.99", "0.99, op: lte, value: 1", "op: is not supported"),
        ("service: chat", "servics: chat", "a.yaml:5: spec.servics: no such key; allowed: descr"),
        ("type: tailspan", "type: datadog", "type: 'datadog'; allowed: tailspan, prometheus"),
        ("ttft_s <=", "tfft_s <=", "a.yaml:11: spec.*good: 'tfft_s' at character 1 is no field"),
        ("metadata: {name: goodput}, ", "", None),
        ("    good:", "    bad:", "a tailspan source says what is good"),
        ("ratioMetric", "thresholdMetric", "thresholdMetric: is not supported"),
    ],
)
def test_what_is_wrong_is_named(
    document: Document, before: str, after: str, says: str | None
) -> None:
    """File, line, key, the value given, the values allowed."""
    text = document().replace(before, after)
    assert text != document()
    errors = inspect_texts({"a.yaml": text}).errors
    if says is None:
        assert not errors
        return
    (error,) = errors
    assert re.search(says, str(error)), str(error)


def test_all_that_is_wrong_is_told_at_once(document: Document) -> None:
    """A linter that stops at the first finding is run ten times."""
    findings = inspect_texts(
        {"a.yaml": document(target="2"), "b.yaml": "x: [", "c.yaml": document(good="x < 1")}
    )
    assert len(findings.errors) == 3


def test_two_objectives_of_one_name_are_refused(document: Document) -> None:
    """Their counts would be added up."""
    findings = inspect_texts({"a.yaml": document(), "b.yaml": document()})
    assert "'chat': a.yaml:8 has this name too" in str(findings.errors[0])


@pytest.mark.parametrize(
    "query", ["http_requests_total[5m]", "rate(x[5m])", "sum(a) / sum(b)", "1"]
)
def test_a_query_whose_window_is_not_ours_to_set_is_refused(query: str) -> None:
    """Burn is measured over eight windows: the range must be left open."""
    text = ELSEWHERE.replace("sum(http_requests_total)", f'"{query}"')
    (error, *_) = inspect_texts({"a.yaml": text}).errors
    assert "allowed: a counter" in str(error)


def test_a_query_with_its_window_left_open_is_taken_as_it_is() -> None:
    """Rates are per second, and are told apart."""
    text = ELSEWHERE.replace(
        "sum(http_requests_total)", "'sum(rate(http_requests_total[{{.window}}]))'"
    )
    indicator = inspect_texts({"a.yaml": text}).spec.objectives[0].indicator
    assert isinstance(indicator, QueryRatio)
    assert indicator.total.per_second
    assert not indicator.part.per_second


@given(st.text("apiVersion: openslo/v1\nkindSLOmetadata{}[],'\"0.9#-&*!", max_size=300))
def test_any_text_is_told_what_is_wrong_with_it(text: str) -> None:
    """Never an exception of another kind."""
    inspect_texts({"a.yaml": text})


@given(st.data())
def test_a_document_with_a_piece_missing_is_read_or_refused(data: st.DataObject) -> None:
    """Cut anywhere, with anything put in."""
    at = data.draw(st.integers(0, len(ELSEWHERE)))
    until = data.draw(st.integers(at, min(len(ELSEWHERE), at + 40)))
    piece = data.draw(st.text(max_size=5))
    inspect_texts({"a.yaml": ELSEWHERE[:at] + piece + ELSEWHERE[until:]})


def test_the_objectives_and_presets_that_come_along_are_read() -> None:
    """What is installed works, and each preset is another's alternative, not its companion."""
    root = Path(__file__).parents[2] / "alerts"
    assert [each.name for each in load([root / "objectives"]).objectives] == ["chat"]
    presets = {each.name for each in load([root / "presets"]).objectives}
    assert presets == {"voice", "chat", "code-completion", "instant", "background"}


def test_a_file_that_is_no_text_is_a_finding(tmp_path: Path) -> None:
    """Its neighbours are read all the same."""
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    (error,) = inspect([tmp_path]).errors
    assert "cannot be read as UTF-8" in str(error)


def test_a_path_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """An empty folder has no objectives to be kept."""
    with pytest.raises(FileNotFoundError, match=r"no \*\.yaml"):
        load([tmp_path])
    with pytest.raises(FileNotFoundError, match="no such file"):
        load([tmp_path / "x.yaml"])
