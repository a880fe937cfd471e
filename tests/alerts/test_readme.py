import re
import textwrap
from pathlib import Path

import yaml

from alerts.notify.channels import ReceiverType
from alerts.notify.configuration import load_configuration
from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from tests.alerts.grouped import read

README = (Path(__file__).parents[2] / "alerts" / "README.md").read_text()


def test_the_objective_in_the_readme_generates_the_rule_shown_there() -> None:
    objective, rule, *_ = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert len(objective.splitlines()) == 12
    findings = inspect_texts({"chat.yaml": objective})
    assert not findings.errors
    made = tailspan_rules(findings.spec.objectives, EXPLORER_URL)
    assert textwrap.indent(rule, "  ") in made


def test_the_channels_in_the_readme_are_sound(tmp_path: Path) -> None:
    *_, notify = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "notify.yaml").write_text(notify)
    (tmp_path / "slack-url").write_text("https://hooks.example.org/x")
    environ = {"PAGERDUTY_KEY": "k", "HOOK_URL": "https://example.org", "HOOK_KEY": "k"}
    found = load_configuration(tmp_path / "notify.yaml", environ)
    assert {channel.kind for channel in found.channels} == set(ReceiverType)


def test_the_groups_in_the_readme_can_be_counted() -> None:
    _, _, sources, _ = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    own, foreign = (
        yaml.safe_load(line)["total"]["metricSource"]["spec"] for line in sources.splitlines()
    )
    good, bad = {"good": "ttft_s <= 0.5"}, {"query": "failures_total"}
    assert read("chat", "tailspan", "good", own, good).by == ("tenant",)
    assert read("web", "Prometheus", "bad", foreign, bad).by == ("tenant",)
