import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts import vocabulary
from alerts.errors import RuleError
from alerts.explorer_links import objective_link
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts, load
from alerts.prometheus.burn_rules import absent_for_s
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.indicators import of_tailspan
from alerts.prometheus.latency_rules import LIMITS
from alerts.prometheus.rulefile import literal, number, quoted
from exporters.definitions.series import ALL, HISTOGRAMS, RECENT
from exporters.self_metrics.alerting import EVALUATED, OLDEST_PENDING
from exporters.self_metrics.leases import HELD
from exporters.self_metrics.tasks import UP
from tests.alerts.conftest import default_objective
from tests.alerts.grouped import query_objective
from ui.frame.view import LATENCIES as EXPLORERS

ALERTS = Path(__file__).parents[3] / "alerts"

Make = Callable[..., Objective]


@cache
def default_rules() -> str:
    return tailspan_rules([default_objective()], "https://tailspan.example.org/")


def rules_of(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    ("file", "folder", "make"),
    [
        ("tailspan", "objectives", tailspan_rules),
        ("operating", "operating", tailspan_rules),
        ("vllm", "vllm", vllm_rules),
    ],
)
def test_the_committed_rules_are_those_generated(
    file: str, folder: str, make: Callable[..., str]
) -> None:
    """If this test fails, run `make generate` and commit the result."""
    made = make(load([ALERTS / folder]).objectives, EXPLORER_URL)
    assert (ALERTS / "rules" / f"{file}.yaml").read_text() == made


def test_rules_use_only_existing_series() -> None:
    rules = rules_of(default_rules())
    recorded = {rule["record"] for rule in rules if "record" in rule}
    exported = {each.name for each in (*ALL, UP, HELD, EVALUATED, OLDEST_PENDING)} | {
        f"{each.name}_{suffix}" for each in HISTOGRAMS for suffix in ("bucket", "count", "sum")
    }
    for rule in rules:
        bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", rule["expr"])
        for name in re.findall(r"[a-z]+:[a-z0-9_:]+", bare):
            assert name in recorded
        for name in re.findall(r"(?<![a-z:_])tailspan_[a-z0-9_]+", bare):
            assert name in exported


def test_every_alert_has_a_summary_a_description_and_a_link() -> None:
    for rule in rules_of(default_rules()):
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("page", "ticket", "info")
            assert set(rule["annotations"]) == {"summary", "description", "dashboard_url"}
            assert rule["labels"].get("slo", "chat") == "chat"
            assert "slo" not in rule["labels"] or rule["labels"]["service"] == "chat"
            assert rule["annotations"]["dashboard_url"].startswith(
                "https://tailspan.example.org/?last="
            )
            assert rule["annotations"]["description"].endswith((".", "`."))


def test_no_text_contains_a_mention_that_a_client_chose() -> None:
    """A client can set any label except the number of an engine."""
    for rule in rules_of(default_rules()):
        for name in ("summary", "description"):
            text = rule.get("annotations", {}).get(name, "")
            for label, after in re.findall(r"\{\{ \$labels\.(\w+)( \| reReplaceAll)?", text):
                assert after or label == "engine", text


def test_the_link_opens_the_explorer_on_the_burning_objective(objective: Make) -> None:
    about = objective(good="e2e_s <= 2", where="where: 'model == \"a/b & c\" and streamed == true'")
    link = objective_link(about, EXPLORER_URL)
    assert link == "http://127.0.0.1:8501/?last=1h&latency=e2e&page=root-cause&model=a%2Fb+%26+c"


@pytest.mark.parametrize("latency", ["ttft", "tpot", "itl_max", "e2e", "queue"])
def test_the_link_shows_the_latency_of_the_objective(objective: Make, latency: str) -> None:
    assert latency in EXPLORERS
    link = objective_link(objective(good=f"{latency}_s <= 2"), EXPLORER_URL)
    assert link.endswith(f"/?last=1h&latency={latency}&page=root-cause")


def test_a_limit_uses_an_existing_series_and_links_to_its_latency() -> None:
    assert {limit.series for limit in LIMITS} <= {each.by_model for each in RECENT}
    assert {limit.latency for limit in LIMITS} <= set(EXPLORERS)


def test_no_rule_averages_a_ratio_or_a_percentile() -> None:
    text = default_rules()
    assert "histogram_quantile" not in text
    assert not re.search(r"avg_over_time\(slo:", text)


def test_a_loose_target_pages_at_a_burn_that_a_total_failure_reaches(objective: Make) -> None:
    """With a target of 90 %, the burn rate of a total failure is 10."""
    text = tailspan_rules([objective(target="0.9")], EXPLORER_URL)
    assert ", alerting above 9." in text
    assert ", alerting above 6." in text
    assert "alerting above 14.4" not in text


@pytest.mark.parametrize(
    ("good", "where", "wanted"),
    [
        ("ttft_s <= 0.4", "", "the nearest bounds are 0.25 and 0.5"),
        ("e2e_s <= 0.1", "", "the nearest bounds are 0.3$"),
        ("ttft_s <= 9999", "", "the nearest bounds are 2560$"),
        ("ttft_s <= 0.5 and tpot_s <= 0.05", "", "cannot count requests that met all of"),
        ("ttft_s < 0.5", "", "write <="),
        ("ttft_s > 0.5", "", "no histogram for this objective"),
        ('outcome == "stop"', "", "no histogram for this objective"),
        ("ttft_s <= 0.5", "where: 'tenant == \"a\"'", "have only the label model"),
    ],
)
def test_a_threshold_between_two_buckets_is_refused(
    document: Callable[..., str], good: str, where: str, wanted: str
) -> None:
    """A histogram can count requests up to the bound of a bucket, but not up to any other value."""
    text = document(good=good.replace("'", "''"), where=where)
    (about,) = inspect_texts({"a.yaml": text}).spec.objectives
    with pytest.raises(RuleError, match=wanted):
        vllm_rules([about], EXPLORER_URL)


def test_a_buckets_bound_is_matched_in_every_notation(objective: Make) -> None:
    """`le` is text: servers write `1.0`, and a Prometheus that normalises labels writes `1`."""
    about = objective(good="ttft_s <= 1", where="where: 'model == \"m\"'")
    text = vllm_rules([about], EXPLORER_URL)
    assert (
        'vllm:time_to_first_token_seconds_bucket{model_name="m",le=~"1|1\\\\.0"}[5m]'
        in rules_of(text)[2]["expr"]
    )


def test_an_alert_on_vllms_own_metrics_does_not_need_tailspan(objective: Make) -> None:
    for rule in rules_of(vllm_rules([objective(good="ttft_s <= 1")], EXPLORER_URL)):
        if "alert" in rule:
            assert "dashboard_url" not in str(rule["annotations"])
            assert "tailspan explain" not in rule["annotations"]["description"]


@given(st.fractions(0, 10**6, max_denominator=10**6))
def test_a_number_is_written_exactly(value: Fraction) -> None:
    text = number(value).strip("()")
    above, _, below = text.partition(" / ")
    assert Fraction(above) / Fraction(below or 1) == value


@given(st.text(max_size=30))
def test_a_text_cannot_end_its_quotes(text: str) -> None:
    inside = quoted(text)[1:-1]
    assert "\n" not in inside
    assert not re.search(r'(?<!\\)(\\\\)*"', inside)


def test_objectives_on_other_metrics_have_no_alert_on_tailspan() -> None:
    """Some installations of Prometheus do not scrape Tailspan. There, an alert on the absence of
    its series would always fire."""
    objective = query_objective(bad="http_errors_total", total="http_requests_total")
    rules = rules_of(tailspan_rules([objective], EXPLORER_URL))
    alerts = {rule["alert"]: rule for rule in rules if "alert" in rule}
    assert set(alerts) == {
        "TailspanBudgetBurn",
        "TailspanBudgetBurnHeldBack",
        "TailspanObjectiveAbsent",
    }
    absent = alerts["TailspanObjectiveAbsent"]
    assert "sum(increase(http_requests_total[5m]))" in absent["annotations"]["description"]
    assert "dashboard_url" not in absent["annotations"]


@pytest.mark.parametrize(
    ("target", "minutes"), [("0.9999", 2), ("0.999", 2), ("0.99", 8), ("0.95", 43)]
)
def test_absence_pages_as_soon_as_a_total_failure_would(
    objective: Make, target: str, minutes: int
) -> None:
    """The wait is at least two minutes, the longest time that a restart takes."""
    about = objective(target=target)
    assert absent_for_s(about, of_tailspan(about)) == 60 * minutes


def test_absence_need_not_page(objective: Make) -> None:
    about = replace(objective(), alert_when_no_data=False)
    assert "TailspanObjectiveAbsent" not in tailspan_rules([about], EXPLORER_URL)


def test_labels_and_annotations_of_the_objective_are_on_each_of_its_alerts(objective: Make) -> None:
    about = replace(
        objective(),
        labels=(("team", "chat-sre"), ("severity", "mine")),
        annotations=(("runbook_url", "https://wiki.example.org/chat"), ("summary", "mine")),
    )
    rules = rules_of(tailspan_rules([about], EXPLORER_URL))
    alerts = [rule for rule in rules if rule.get("labels", {}).get("slo") and "alert" in rule]
    assert len(alerts) == 10
    for rule in alerts:
        assert rule["labels"]["team"] == "chat-sre"
        assert rule["labels"]["severity"] != "mine"
        assert rule["annotations"]["runbook_url"] == "https://wiki.example.org/chat"
        assert rule["annotations"]["summary"] != "mine"


def expanded(template: str) -> str:
    """Return the text that Go makes of a template whose only actions are those of `literal`."""
    rest = template.replace('{{ "{" }}', "\0")
    assert "{{" not in rest
    return rest.replace("\0", "{")


@given(st.text(st.sampled_from('{}"`-$.\n a') | st.characters(exclude_characters="\0")))
def test_a_text_is_never_a_template(text: str) -> None:
    assert expanded(literal(text)) == text


@pytest.mark.parametrize("text", ["{{{ $value }}}", "{ {{ . }} }", "{{`x`}}", "a { b } c"])
def test_no_text_of_an_objective_is_a_template(objective: Make, text: str) -> None:
    made = objective(where=f"""where: 'tenant == "{text}"'""")
    for rule in rules_of(tailspan_rules([made], f"http://x/{text}")):
        if rule.get("alert") == vocabulary.ALERT_BURNING:
            notes = rule["annotations"]
            ours = re.sub(
                r"\{\{ (with query|\. \||end|\$value \|).*?\}\}", "", notes["description"]
            )
            assert f'tenant == "{text}"' in expanded(ours)
            assert expanded(notes["dashboard_url"]).startswith(f"http://x/{text}/?")
            break
    else:
        pytest.fail("no alert of a burn")
