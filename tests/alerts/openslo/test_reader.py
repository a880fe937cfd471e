import re
import textwrap
from collections.abc import Callable
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.burnrate import WindowPair
from alerts.objectives import Goodput, QueryRatio, RawRatio
from alerts.openslo.reader import inspect, inspect_texts, load
from alerts.periods import Calendar
from alerts.policy import policy_for
from alerts.slices import Slices
from tests.chat_objective import chat_openslo

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
kind: AlertPolicy
metadata: {name: wake}
spec:
  alertWhenNoData: false
  conditions: [{conditionRef: fast}]
  notificationTargets: [{targetRef: team}]
---
apiVersion: openslo/v1
kind: AlertCondition
metadata: {name: fast}
spec:
  severity: page
  condition: {kind: burnrate, op: gt, threshold: 12, lookbackWindow: 2h, alertAfter: 10m}
---
apiVersion: openslo/v1
kind: AlertNotificationTarget
metadata: {name: team}
spec: {target: slack}
---
apiVersion: openslo/v1
kind: DataSource
metadata: {name: metrics}
spec: {type: Prometheus, connectionDetails: [{url: "http://prometheus.example.org"}]}
---
apiVersion: openslo/v1
kind: Service
metadata: {name: web}
spec: {description: The web shop}
"""


def test_an_objective_is_read_exactly(document: Document) -> None:
    (objective,) = inspect_texts({"a.yaml": document(target="0.999")}).spec.objectives
    assert objective.target == Fraction(999, 1000)
    assert objective.budget == Fraction(1, 1000)
    assert objective.target_written == "99.9 %"
    assert objective.period_s == 30 * 86_400
    assert isinstance(objective.indicator, Goodput)


CALENDAR = "calendar: {startTime: '2022-01-01 12:00:00', timeZone: America/New_York}"


def test_a_calendar_period_is_read(document: Document) -> None:
    """A calendar month has the burn rates of a rolling period of 30 days."""
    about = {"period": "1M", "window": CALENDAR}
    (objective,) = inspect_texts({"a.yaml": document(**about)}).spec.objectives
    (rolling,) = inspect_texts({"a.yaml": document()}).spec.objectives
    assert objective.calendar == Calendar(datetime(2022, 1, 1, 12), "America/New_York", 1, "M")
    assert objective.period_s == 30 * 86_400
    assert objective.policy == rolling.policy
    assert objective.period_text == ("a calendar month (from 2022-01-01 12:00, America/New_York)")


@pytest.mark.parametrize(
    ("period", "window", "expected"),
    [
        ("1m", CALENDAR, "duration: '1m'; allowed with a calendar: .* d, w, M, Q, Y"),
        ("6d", CALENDAR, "duration: '6d'; allowed: 1w to 1Y"),
        ("2Y", CALENDAR, "duration: '2Y'; allowed: 1w to 1Y"),
        ("1M", "isRolling: true", "duration: '1M'; allowed: a whole number of seconds above 0"),
        ("1M", "calendar: {startTime: '2022-01-01'}", "timeZone: is missing"),
        ("1M", CALENDAR.replace("New_York", "Newyork"), "timeZone: 'America/Newyork'; allowed: an"),
        ("1M", CALENDAR.replace("America/New_York", "../../etc"), "timeZone: '../../etc'; allowed"),
        ("1M", CALENDAR.replace("2022-01", "2022-13"), "startTime: '2022-13-01 12:00:00'; allowed"),
        ("1M", CALENDAR.replace("00'", "00+01:00'"), "startTime: .* without a zone"),
        ("1M", CALENDAR.replace("2022", "0001"), "startTime: .* from 1970 to 2100"),
    ],
)
def test_a_calendar_that_cannot_be_read_is_refused(
    document: Document, period: str, window: str, expected: str
) -> None:
    findings = inspect_texts({"a.yaml": document(period=period, window=window)})
    assert not findings.spec.objectives
    assert re.search(expected, str(findings.errors[0]))


def test_time_slices_are_read(document: Document) -> None:
    """`timeSliceWindow` without a unit is in minutes."""
    about = {"method": "Timeslices", "slices": ", timeSliceTarget: 0.95, timeSliceWindow: 5"}
    (objective,) = inspect_texts({"a.yaml": document(**about)}).spec.objectives
    assert objective.indicator.slices == Slices(300, Fraction(95, 100), "95 %")
    assert objective.policy.minimum_bad_events == 1
    assert objective.counted_in == "slices of 5m"
    assert "99 % of 5m slices with 95 % of requests" in objective.statement


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ("timeSliceTarget: 0.95", "timeSliceWindow: is missing"),
        ("timeSliceTarget: 1.1, timeSliceWindow: 1m", "timeSliceTarget: '1.1'; allowed: .* most 1"),
        ("timeSliceTarget: 0.95, timeSliceWindow: 15s", "timeSliceWindow: '15s'; allowed: whole"),
        (
            "timeSliceTarget: 0.95, timeSliceWindow: 2m",
            "2m; allowed: a whole number of minutes that divides each",
        ),
        (
            "timeSliceTarget: 0.95, timeSliceWindow: 1h",
            "1h; allowed: a whole number of minutes that divides each",
        ),
    ],
)
def test_time_slices_that_cannot_be_read_are_refused(
    document: Document, slices: str, expected: str
) -> None:
    text = document(method="Timeslices", slices=f", {slices}")
    findings = inspect_texts({"a.yaml": text})
    assert not findings.spec.objectives
    assert re.search(expected, str(findings.errors[0]))


def test_objectives_of_other_tools_are_read() -> None:
    findings = inspect_texts({"a.yaml": ELSEWHERE})
    assert not findings.errors
    strict, loose = findings.spec.objectives
    assert (strict.name, strict.display_name, loose.name) == ("http-99-9", "strict", "http-95")
    assert strict.target == Fraction("0.999")
    assert strict.period_s == 28 * 86_400
    indicator = strict.indicator
    assert isinstance(indicator, QueryRatio)
    assert indicator.part_is_bad
    assert indicator.total.over("5m") == "sum(increase(http_requests_total[5m]))"
    assert indicator.part.over("1h") == 'sum(increase(http_requests_total{code=~"5.."}[1h]))'
    assert strict.labels == (("team", "a,b"),)
    assert not strict.alert_when_no_data
    assert strict.policy.pairs == (WindowPair("page", 7_200, 600, Fraction(12)),)
    assert strict.policy.name == "wake"
    (note,) = findings.spec.notes
    assert "AlertNotificationTarget team has no effect" in note


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[{conditionRef: fast}]", "[]", "conditions: is empty"),
        ("conditionRef: fast", "conditionRef: slow", "'slow' is no AlertCondition; allowed: fast"),
        ("alertPolicyRef: wake", "alertPolicyRef: x", "'x' is no AlertPolicy; allowed: wake"),
        ("severity: page", "severity: sev1", "severity: 'sev1'; allowed: page, ticket"),
        ("kind: burnrate", "kind: budget", "kind: 'budget'; allowed: burnrate"),
        ("op: gt", "op: lte", "op: 'lte'; allowed: gt"),
        ("threshold: 12", "threshold: -1", "threshold: '-1'; allowed: a burn rate above 0"),
        (
            "threshold: 12",
            "threshold: 21",
            "can never cause a page by a.yaml:.*burns only 20 times too fast",
        ),
        ("alertAfter: 10m", "alertAfter: 30s", "alertAfter: is too short; allowed: at least 1m"),
        ("alertAfter: 10m", "alertAfter: 3h", "alertAfter: must be shorter than lookbackWindow"),
        (
            "alertWhenNoData: false",
            "alertWhenBreaching: false",
            "would disable every alert; allowed: true",
        ),
        ("{target: slack}", "{targets: slack}", "spec.targets: no such key"),
        ("{targetRef: team}", "{target: team}", "notificationTargets.0..target: no such key"),
        ("connectionDetails", "connection", "spec.connection: no such key"),
        ("{description: The web shop}", "{owner: me}", "spec.owner: no such key"),
        ("labels: {team: [a, b]}", "labels: {slo: x}", "labels: 'slo' is set by the rules"),
        (
            "labels: {team: [a, b]}",
            "labels: {a.b: x, a_b: y}",
            "another label has the same name in Prometheus, a_b",
        ),
        ("labels: {team: [a, b]}", "labels: {team: {a: b}}", "labels: must be a mapping of texts"),
    ],
)
def test_documents_beside_an_slo_are_read_as_strictly(
    before: str, after: str, expected: str
) -> None:
    assert before in ELSEWHERE
    errors = inspect_texts({"a.yaml": ELSEWHERE.replace(before, after)}).errors
    assert any(re.search(expected, str(error)) for error in errors), errors


def test_a_policy_may_be_written_within_its_slo() -> None:
    """Without `alertAfter`, the short window is a twelfth of the long window."""
    inline = (
        "[{kind: AlertPolicy, metadata: {name: own}, spec: {conditions: [{kind: AlertCondition,"
        " metadata: {name: c}, spec: {severity: ticket, condition: {kind: burnrate,"
        " threshold: 1.5, lookbackWindow: 1d}}}]}}]"
    )
    text = ELSEWHERE.replace("[{alertPolicyRef: wake}]", inline)
    strict, _ = inspect_texts({"a.yaml": text}).spec.objectives
    assert strict.policy.pairs == (WindowPair("ticket", 86_400, 7_200, Fraction("1.5")),)
    assert strict.alert_when_no_data


@pytest.mark.parametrize("given", ["alertPolicies:", "alertPolicies: []"])
def test_without_a_policy_the_built_in_one_applies(given: str) -> None:
    text = ELSEWHERE.replace("alertPolicies: [{alertPolicyRef: wake}]", given)
    strict, _ = inspect_texts({"a.yaml": text}).spec.objectives
    assert strict.policy == policy_for(28 * 86_400, Fraction(1, 1000))


def test_a_metric_source_may_refer_to_its_data_source() -> None:
    named = ELSEWHERE.replace(
        "type: Prometheus, spec: {query", "metricSourceRef: metrics, spec: {query"
    )
    assert named != ELSEWHERE
    findings = inspect_texts({"a.yaml": named})
    assert not findings.errors
    assert isinstance(findings.spec.objectives[0].indicator, QueryRatio)
    elsewhere = named.replace("{type: Prometheus, conn", "{type: Datadog, conn")
    (error, *_) = inspect_texts({"a.yaml": elsewhere}).errors
    assert "'metrics' is of type 'Datadog'; allowed: tailspan" in str(error)
    (error, *_) = inspect_texts({"a.yaml": named.replace("{name: metrics}", "{name: m}")}).errors
    assert "'metrics' is no DataSource; allowed: m" in str(error)


def test_a_file_may_be_a_sequence_of_documents(document: Document) -> None:
    one, two = (
        textwrap.indent(document(name=name), "  ").replace("  api", "- api", 1)
        for name in ("a", "b")
    )
    findings = inspect_texts({"a.yaml": one + two})
    assert [each.name for each in findings.spec.objectives] == ["a", "b"]


def test_an_objective_that_is_inserted_renames_no_other() -> None:
    """Stored histories are found by the objective's name."""
    more = ELSEWHERE.replace("[{displayName: strict", "[{target: 0.97}, {displayName: strict")
    names = [each.name for each in inspect_texts({"a.yaml": more}).spec.objectives]
    assert names == ["http-97", "http-99-9", "http-95"]
    same = ELSEWHERE.replace("{target: 0.95}", "{target: 0.999}")
    (error,) = inspect_texts({"a.yaml": same}).errors
    assert "'http-99-9': a.yaml:18 has this name too" in str(error)


def test_where_all_selects_every_request(document: Document) -> None:
    (every,) = inspect_texts({"a.yaml": document(where="where: all")}).spec.objectives
    (nothing,) = inspect_texts({"a.yaml": document()}).spec.objectives
    assert every.indicator == nothing.indicator


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("openslo/v1", "openslo/v2", "a.yaml:1: apiVersion: 'openslo/v2'; allowed: openslo/v1"),
        ("kind: SLO", "kind: Slo", "a.yaml:2: kind: 'Slo'; allowed: SLO, SLI"),
        ("name: chat", "name: Chat", "metadata.name: 'Chat'; allowed: a-z"),
        ("Occurrences", "Timeslices", "a.yaml:8: spec.objectives.0..timeSliceTarget: is missing"),
        ("Occurrences", "RatioTimeslices", "'RatioTimeslices'; allowed: Occurrences, Timeslices"),
        ("0.99", "0.99, timeSliceTarget: 0.9", "timeSliceTarget: is given without budgetingMethod"),
        ("30d", "30", "spec.timeWindow.0..duration: '30'; allowed: a whole number"),
        ("30d", "1d", "duration: '1d'; allowed: 7d to 366d"),
        ("isRolling: true", "isRolling: false", "isRolling: false, and no calendar is given"),
        ("isRolling: true", "isRolling: true, calendar: {}", "a rolling window has no calendar"),
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
        ("0.99", "0.99, op: lte", "op: 'lte'; allowed: gt, gte"),
        ("0.99", "0.99, op: gt, value: 1", "value: is not supported"),
        ("service: chat", "servics: chat", "a.yaml:5: spec.servics: no such key; allowed: descr"),
        ("type: tailspan", "type: datadog", "type: 'datadog'; allowed: tailspan, prometheus"),
        ("ttft_s <=", "tfft_s <=", "a.yaml:11: spec.*good: 'tfft_s' at character 1 is not a field"),
        ("metadata: {name: goodput}, ", "", None),
        ("    good:", "    bad:", "a tailspan source defines good events"),
        ("ratioMetric", "thresholdMetric", "thresholdMetric: is not supported"),
    ],
)
def test_an_error_names_file_line_key_value_and_allowed_values(
    document: Document, before: str, after: str, expected: str | None
) -> None:
    text = document().replace(before, after)
    assert text != document()
    errors = inspect_texts({"a.yaml": text}).errors
    if expected is None:
        assert not errors
        return
    (error,) = errors
    assert re.search(expected, str(error)), str(error)


def test_all_errors_are_reported_at_once(document: Document) -> None:
    findings = inspect_texts(
        {"a.yaml": document(target="2"), "b.yaml": "x: [", "c.yaml": document(good="x < 1")}
    )
    assert len(findings.errors) == 3


def test_two_objectives_of_one_name_are_refused(document: Document) -> None:
    """The counts of two objectives with the same name would be added together."""
    findings = inspect_texts({"a.yaml": document(), "b.yaml": document()})
    assert "'chat': a.yaml:8 has this name too" in str(findings.errors[0])


def test_a_query_without_a_window_placeholder_is_refused() -> None:
    text = ELSEWHERE.replace("sum(http_requests_total)", '"rate(x[5m])"')
    (error, *_) = inspect_texts({"a.yaml": text}).errors
    assert "allowed: a counter" in str(error)


def test_a_raw_ratio_is_read_as_openslo_writes_it() -> None:
    before, after = ELSEWHERE.split("    counter: true\n"), ELSEWHERE.split("---\n", 1)
    raw = (
        "    rawType: {}\n    raw: {{metricSource: {{type: Prometheus, spec: {{query: '{}'}}}}}}\n"
    )
    query = "1 - sum(sum_over_time(x[{{.window}}])) / sum(count_over_time(x[{{.window}}]))"

    def written(kind: str, text: str = query, more: str = "") -> str:
        return f"{before[0]}{raw.format(kind, text)}{more}---\n{after[1]}"

    for kind, is_bad in (("failure", True), ("success", False)):
        findings = inspect_texts({"a.yaml": written(kind)})
        assert not findings.errors
        indicator = findings.spec.objectives[0].indicator
        assert isinstance(indicator, RawRatio)
        assert indicator.is_bad is is_bad
    for text, expected in (
        (written("bad"), "rawType: 'bad'; allowed: success, failure"),
        (written("failure", "x"), "raw.metricSource.spec.query: 'x': it has no range"),
        (written("failure", more="    total: {}\n"), "total: give raw, or total with good or bad"),
        (written("failure").replace("type: P", "type: tailspan #", 1), "a.yaml:"),
    ):
        (error, *_) = inspect_texts({"a.yaml": text}).errors
        assert expected in str(error)


def test_gauges_are_read() -> None:
    text = ELSEWHERE.replace("counter: true", "counter: false")
    indicator = inspect_texts({"a.yaml": text}).spec.objectives[0].indicator
    assert isinstance(indicator, QueryRatio)
    assert indicator.total.over("5m") == "sum(sum_over_time(http_requests_total[5m]))"


def test_a_query_with_a_window_placeholder_is_unchanged() -> None:
    text = ELSEWHERE.replace(
        "sum(http_requests_total)", "'sum(rate(http_requests_total[{{.window}}]))'"
    )
    indicator = inspect_texts({"a.yaml": text}).spec.objectives[0].indicator
    assert isinstance(indicator, QueryRatio)
    assert indicator.total.per_second
    assert not indicator.part.per_second


@given(st.text("apiVersion: openslo/v1\nkindSLOmetadata{}[],'\"0.9#-&*!", max_size=300))
def test_any_text_is_read_or_has_findings(text: str) -> None:
    inspect_texts({"a.yaml": text})


@given(st.data())
def test_a_document_with_a_piece_missing_is_read_or_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ELSEWHERE)))
    until = data.draw(st.integers(at, min(len(ELSEWHERE), at + 40)))
    piece = data.draw(st.text(max_size=5))
    inspect_texts({"a.yaml": ELSEWHERE[:at] + piece + ELSEWHERE[until:]})


def test_the_installed_objectives_and_presets_are_read() -> None:
    root = Path(__file__).parents[3] / "alerts"
    assert [each.name for each in load([root / "objectives"]).objectives] == ["chat"]
    presets = {each.name for each in load([root / "presets"]).objectives}
    assert presets == {"voice", "chat", "code-completion", "instant", "background"}


def test_a_binary_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    (error,) = inspect([tmp_path]).errors
    assert "cannot be read as UTF-8" in str(error)


def test_a_mounted_configmap_is_read(document: Document, tmp_path: Path) -> None:
    """Kubernetes mounts each file as a symbolic link into a hidden subfolder."""
    version = tmp_path / "..2026_11_30_12_00_00.1"
    version.mkdir()
    (version / "chat.yaml").write_text(document())
    (tmp_path / "..data").symlink_to(version.name)
    (tmp_path / "chat.yaml").symlink_to("..data/chat.yaml")
    (objective,) = load([tmp_path, version / "chat.yaml"]).objectives
    assert objective.file == str(tmp_path / "chat.yaml")


def test_a_missing_path_and_an_empty_folder_are_findings(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \*\.yaml"):
        load([tmp_path])
    with pytest.raises(FileNotFoundError, match="no such file"):
        load([tmp_path / "x.yaml"])


@pytest.mark.parametrize(
    ("good", "wanted"),
    [
        ("ttft_s >= 0.5", "counts slow requests as good; write a limit as ttft_s <= 0.5"),
        ("e2e_s <= 9 and tpot_s > 0.05", "tpot_s > 0.05 counts slow requests"),
        ("ttft_s <= 5000", "ttft_s <= 5000 is never missed; latencies are in seconds"),
        ("ttft_s <= 0.5 and e2e_s <= 600", None),
        ("not (ttft_s > 0.5)", None),
        ("output_tokens > 5000", None),
    ],
)
def test_a_suspicious_limit_is_a_note_not_a_finding(good: str, wanted: str | None) -> None:
    findings = inspect_texts({"a.yaml": chat_openslo(good)})
    assert not findings.errors
    assert len(findings.spec.notes) == (wanted is not None)
    if wanted is not None:
        assert wanted in findings.spec.notes[0]
