import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.checks import promtool
from cli.main import tailspan
from store.alerting.incidents import store_evaluation
from store.alerting.notifications import store_notifications
from store.database import open_database
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification
from telemetry.requests import RequestTimeline

Fill = Callable[..., None]
Row = Callable[..., RequestTimeline]
Asked = Callable[..., Result]


START_S = 1_763_634_000

OBJECTIVE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.99}]
  indicator: {spec: {ratioMetric: {
    total: {metricSource: {type: tailspan, spec: {where: all}}},
    good: {metricSource: {type: tailspan, spec: {good: ttft_s <= 0.5}}}}}}
"""


def slo(*words: str) -> Result:
    return CliRunner().invoke(tailspan, ["slo", *words], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.yaml"
    path.write_text(OBJECTIVE)
    return path


def test_valid_objectives_pass(file: Path) -> None:
    assert slo("check", str(file)).exit_code == 0
    assert slo("check", str(file.parent)).exit_code == 0
    assert slo("check").exit_code == 0


def test_a_finding_stops_a_pipeline(file: Path) -> None:
    file.write_text(OBJECTIVE.replace("0.99", "1.2") + "---\nkind: SLO\n")
    result = slo("check", str(file))
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first == f"{file}:13: apiVersion: is missing"
    assert second.startswith(f"{file}:8: spec.objectives[0].target: '1.2'; allowed")
    found = [
        json.loads(line) for line in slo("check", str(file), "--format", "json").output.splitlines()
    ]
    assert found[0] == {
        "file": str(file), "line": 13, "key": "apiVersion", "problem": "is missing"
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["check", "rules", "status"])
def test_a_path_that_is_not_there_is_wrong_usage(verb: str, tmp_path: Path) -> None:
    result = slo(verb, str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "no such file or folder" in result.stderr


def test_rules_are_printed_or_written(file: Path, tmp_path: Path) -> None:
    printed = slo("rules", str(file))
    assert printed.exit_code == 0
    written = tmp_path / "rules.yaml"
    assert slo("rules", str(file), "--output", str(written)).exit_code == 0
    assert written.read_text() == printed.stdout
    assert "vllm:time_to_first_token_seconds" in slo("rules", str(file), "--for", "vllm").stdout


def test_rules_in_json_are_those_in_yaml(file: Path, tmp_path: Path) -> None:
    """Prometheus reads JSON as YAML, which has no escapes of surrogates."""
    name = "Chat \U0001f680 \u00e9 \\u2028 \\\\ud83d"
    text = OBJECTIVE.replace("name: chat}", f'name: chat, displayName: "{name}"}}')
    file.write_text(text, encoding="utf-8")
    rules = yaml.safe_load(slo("rules", str(file)).stdout)
    assert "\U0001f680" in str(rules)
    written = tmp_path / "rules.json"
    assert slo("rules", str(file), "--format", "json", "--output", str(written)).exit_code == 0
    in_json = written.read_text(encoding="utf-8")
    assert json.loads(in_json) == yaml.safe_load(in_json) == rules
    if shutil.which("promtool") is not None:
        done = subprocess.run(["promtool", "check", "rules", written], capture_output=True)
        assert done.returncode == 0, done.stderr


def test_rules_of_one_environment_contain_its_label(file: Path) -> None:
    done = slo("rules", str(file), "--selector", "env='prod'")
    assert done.exit_code == 0
    assert '# Only series with env="prod"' in done.output
    assert 'tailspan_slo_events_total{env="prod",slo=' in done.output
    done = slo("rules", str(file), "--selector", 'env="prod"} or x{')
    assert done.exit_code == 2
    assert "--selector" in done.output
    assert "allowed: matchers as within" in done.output


def test_an_objective_without_possible_rules_is_a_finding(file: Path) -> None:
    assert slo("rules", str(file), "--explorer-url", "javascript:alert(1)").exit_code == 2
    file.write_text(OBJECTIVE.replace("0.5", "0.4"))
    result = slo("rules", str(file), "--for", "vllm")
    assert result.exit_code == 1
    assert "the nearest bounds are 0.25 and 0.5" in result.stderr


@pytest.fixture
def asked(file: Path, url: str, fill: Fill, request_row: Row) -> Callable[..., Result]:
    """Return a function that runs `slo status` after two hours of requests.

    In the second hour, `bad` out of every ten requests are bad.
    """

    def ask(bad: int, *words: str, target: str = "0.99") -> Result:
        file.write_text(OBJECTIVE.replace("0.99", target))
        fill(
            *(
                request_row(
                    10 * n, ttft_s=2.0 if n >= 360 and n % 10 < bad else 0.1, output_tokens=5
                )
                for n in range(720)
            )
        )
        at = ["--at", str(START_S + 7200)]
        return slo("status", str(file), "--database", url, *at, *words)

    return ask


def test_a_met_objective_has_its_budget(asked: Asked, file: Path, url: str) -> None:
    result = asked(0)
    assert result.exit_code == 0
    assert "720 good of 720 requests, counted since 2025-11-20 10:20:00 UTC" in result.stdout
    assert "100.0% of the budget left; burning at 0.00 (last 1h), so no budget is spent" in (
        result.stdout
    )
    assert "NO DATA" not in result.stdout
    # Time without data counts as good, so the budget of today alone would look healthy.
    today = slo("status", str(file), "--database", url)
    assert today.stdout.startswith("NO DATA for ")
    status = json.loads(slo("status", str(file), "--database", url, "--format", "json").stdout)
    assert status["newest_data"] == START_S + 7_190
    assert status["no_data_for_s"] > 3_600


def test_a_burn_that_pages_is_a_finding(asked: Asked) -> None:
    result = asked(5, "--format", "json")
    assert result.exit_code == 1
    status = json.loads(result.stdout)
    assert (status["events"], status["bad"], status["counted_since"]) == (720, 180, START_S)
    assert status["burn"]["1h"] == pytest.approx(50)
    assert status["covered"] == pytest.approx(7215 / (30 * 86_400))
    assert status["budget_left"] == pytest.approx(1 - 25 * 7215 / (30 * 86_400))
    assert status["exhausted_in_s"] == pytest.approx(status["budget_left"] * 30 * 86_400 / 50)
    assert [each["state"] for each in status["alerts"][:2]] == ["firing", "firing"]


def test_an_objective_that_counts_no_request_has_a_reason(
    file: Path, url: str, fill: Fill, request_row: Row
) -> None:
    """vLLM's native spans do not report whether a response was streamed."""
    file.write_text(OBJECTIVE.replace("spec: {where: all}", "spec: {where: streamed == true}"))
    fill(*(request_row(10 * n, streamed=None) for n in range(200)))
    at = ["--at", str(START_S + 2_000), "--database", url]
    shown = slo("status", str(file), *at).stdout
    assert "blind in the last hour: no request matches its `where`" in shown
    status = json.loads(slo("status", str(file), *at, "--format", "json").stdout)
    assert status["blind"] == "none_selected"


def test_an_objective_with_groups_is_blind_as_a_whole(
    file: Path, url: str, fill: Fill, request_row: Row
) -> None:
    """Each group alone has too few requests to be reported as blind."""
    file.write_text(OBJECTIVE.replace("where: all", "where: all, by: [tenant]"))
    fill(*(request_row(10 * n, tenant=f"t{n % 40}", ttft_s=None) for n in range(120)))
    at = ["--at", str(START_S + 2_000), "--database", url]
    assert slo("status", str(file), *at).stdout.count("blind in the last hour") == 1
    lines = slo("status", str(file), *at, "--format", "json").stdout.splitlines()
    status = [json.loads(line) for line in lines]
    assert {each["slo"]: each["blind"] for each in status if each["blind"]} == {
        'chat{tenant="other"}': "unknown"
    }
    assert len(status) == 41


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_rules_that_promtool_refuses_are_a_finding(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slo("check", str(file)).exit_code == 0
    monkeypatch.setattr(promtool, "tailspan_rules", lambda *_: "groups: [{name: a, rules: 1}]")
    result = slo("check", str(file))
    assert result.exit_code == 1
    assert f"{file}:8: promtool rejects it:" in result.stdout


def test_no_counted_requests_are_null_not_zero(file: Path, url: str, fill: Fill) -> None:
    assert slo("status", str(file), "--database", f"{url}.none").exit_code == 2
    fill()
    result = slo("status", str(file), "--database", url)
    assert result.exit_code == 0
    assert "no requests counted yet" in result.stdout
    status = json.loads(slo("status", str(file), "--database", url, "--format", "json").stdout)
    unknown = (status["budget_left"], status["counted_since"], status["burn"]["1h"])
    assert unknown == (None, None, None)
    for at, error in (("yesterday", ""), ("2130-01-01", "is in the future; allowed: times up to")):
        refused = slo("status", str(file), "--at", at, "--database", url)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert error in refused.stderr


def test_an_incident_after_the_instant_is_not_listed(
    file: Path, url: str, fill: Fill, request_row: Row
) -> None:
    fill(request_row())
    engine = open_database(url)
    ended = START_S + 90
    page = IncidentRow("chat", "page", START_S + 30, START_S, ended, ended, ended, "20", None)
    store_evaluation(engine, "chat", ended, [page])
    engine.dispose()
    for at_s, listed in ((START_S + 29, None), (START_S + 60, "ongoing"), (ended, "ended")):
        shown = slo("status", str(file), "--at", str(at_s), "--database", url).stdout
        assert ("peak burn" in shown) is (listed is not None)
        assert ("ongoing" in shown) is (listed == "ongoing")


def test_failed_notifications_are_shown(file: Path, url: str, fill: Fill, request_row: Row) -> None:
    fill(request_row())
    engine = open_database(url)
    page = IncidentRow("chat", "page", START_S, START_S, START_S, None, START_S, "20", None)
    store_evaluation(engine, "chat", START_S, [page])
    row = Notification("chat", "page", START_S, "firing", "team", "{}", START_S)
    gone = replace(row, fired_unix_s=START_S - 9, channel="of-another-incident")
    delivered = replace(row, channel="sent", state="delivered", delivered_unix_s=START_S + 2)
    waiting = replace(row, channel="late", failures=3, next_unix_s=START_S + 9, problem="busy")
    dead = replace(row, state="dead", failures=1, problem="status 404: no_service")
    update = replace(delivered, channel="hook", failures=1, problem="status 400: wrong")
    store_notifications(engine, [gone, delivered, waiting, dead, update])
    engine.dispose()
    at = ["--at", str(START_S + 60), "--database", url]
    shown = slo("status", str(file), *at).stdout
    assert "not notified  of             incident of (UTC)    state        failed" in shown
    assert re.search(r"late +the beginning +2025-\S+ \S+ +to be tried +3 +busy", shown)
    assert re.search(r"team +the beginning +2025-\S+ \S+ +given up +1 +status 404: no_", shown)
    assert re.search(r"hook +the update +2025-\S+ \S+ +given up +1 +status 400: wrong", shown)
    assert "another" not in shown
    rows = json.loads(slo("status", str(file), *at, "--format", "json").stdout)["notifications"]
    assert {each["channel"]: each["state"] for each in rows} == {
        "sent": "delivered", "late": "pending", "team": "dead", "hook": "delivered"
    }  # fmt: skip
    assert next(each for each in rows if each["channel"] == "team") == {
        "severity": "page", "fired": START_S, "transition": "firing", "channel": "team",
        "state": "dead", "failures": 1, "delivered": None, "next": None,
        "problem": "status 404: no_service",
    }  # fmt: skip


def test_a_budget_that_is_touched_is_not_100_percent(
    file: Path, url: str, fill: Fill, request_row: Row
) -> None:
    fill(*(request_row(10 * n, ttft_s=9.0 if n == 700 else 0.1) for n in range(720)))
    words = ("status", str(file), "--database", url, "--at", str(START_S + 7200))
    assert "  99.961% of the budget left;" in slo(*words).stdout


def test_each_group_has_a_line_and_its_own_json(
    file: Path, url: str, fill: Fill, request_row: Row
) -> None:
    file.write_text(OBJECTIVE.replace("where: all", "where: all, by: [tenant]"))
    fill(
        *(
            request_row(10 * n, tenant=("acme", "globex")[n % 2], ttft_s=0.1 if n % 2 else 9.0)
            for n in range(720)
        )
    )
    words = ("status", str(file), "--database", url, "--at", str(START_S + 7200))
    status = slo(*words).stdout
    assert 'chat{tenant="acme"}: 360 bad of 360;' in status
    assert 'chat{tenant="globex"}: 0 bad of 360; 100.0% of the budget left' in status
    found = [json.loads(line) for line in slo(*words, "--format", "json").stdout.splitlines()]
    assert {each["slo"]: each["bad"] for each in found} == {
        'chat{tenant="other"}': 0,
        'chat{tenant="acme"}': 360,
        'chat{tenant="globex"}': 0,
    }
    assert [each["group"] for each in found if each["bad"]] == [{"tenant": "acme"}]
