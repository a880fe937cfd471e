import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan

Notify = Callable[..., Result]


CONFIG = """\
explorer_url: https://tailspan.example.org
channels:
  - {{name: on-call, type: pagerduty, severities: [page], url: "{url}/pd", routing_key_env: KEY}}
  - {{name: team, type: slack, severities: [ticket], url: "{url}/T0K3N9ab8c"}}
  - {{name: manager, type: alertmanager, url: "{url}", authorization_env: AUTH}}
  - {{name: hook, type: webhook, url: "{url}/hook", signing_key_env: KEY}}
"""
ENVIRON = {"KEY": "R0UT1NG", "AUTH": "Bearer B3AR3R", "http_proxy": "", "no_proxy": "127.0.0.1"}


@pytest.fixture
def notify(tmp_path: Path) -> Callable[..., Result]:
    def run(url: str, *words: str) -> Result:
        file = tmp_path / "notify.yaml"
        file.write_text(CONFIG.format(url=url))
        result = CliRunner().invoke(
            tailspan, ["slo", "notify", str(file), *words], env=ENVIRON, catch_exceptions=False
        )
        for secret in ("R0UT1NG", "T0K3N9ab8c", "B3AR3R"):
            assert secret not in result.output
        return result

    return run


def test_without_a_test_nothing_is_sent(notify: Notify) -> None:
    shown = notify("http://127.0.0.1:1")
    assert shown.exit_code == 0
    assert "on-call: pagerduty, for page" in shown.stdout
    assert '"routing_key": "***"' in shown.stdout
    assert "Authorization: ***" in shown.stdout
    assert "Tailspan-Signature: ***" in shown.stdout
    lines = notify("http://127.0.0.1:1", "--format", "json", "--resolved").stdout.splitlines()
    printed = {each["channel"]: each for each in map(json.loads, lines)}
    assert list(printed) == ["on-call", "team", "manager", "hook"]
    assert printed["on-call"]["body"]["event_action"] == "resolve"
    assert printed["hook"]["body"]["test"] is True
    assert "[test] [over]" in printed["team"]["body"]["text"]


def test_a_test_shows_each_channels_answer(
    notify: Notify, stranger: Callable[..., str], http_answer: Callable[..., bytes]
) -> None:
    url = stranger(
        {
            "/pd": http_answer(202, "Accepted", '{"status": "success"}'),
            "/T0K3N9ab8c": http_answer(404, "Not Found", "no_service for T0K3N9ab8c"),
            "/hook": http_answer(503, "Busy"),
            "/api/v2/alerts": http_answer(),
        }
    )
    tried = notify(url, "--test")
    assert tried.exit_code == 1
    assert tried.stdout.splitlines() == [
        'on-call  delivered  status 202: {"status": "success"}',
        "team  refused  status 404: no_service for ***",
        "manager  delivered  status 200",
        "hook  failed  status 503",
    ]
    one = notify(url, "--test", "--channel", "manager", "--format", "json")
    assert one.exit_code == 0
    assert json.loads(one.stdout) == {
        "channel": "manager", "result": "delivered", "status": 200, "answer": ""
    }  # fmt: skip


def test_a_missing_file_is_named() -> None:
    result = CliRunner().invoke(tailspan, ["slo", "notify", "/nope/n"])
    assert result.exit_code == 2
    assert "Error: /nope/n: No such file or directory\n" in result.stderr


def test_wrong_usage_prints_the_allowed_values(notify: Notify, tmp_path: Path) -> None:
    result = notify("http://127.0.0.1:1", "--channel", "nobody")
    assert result.exit_code == 2
    assert "allowed: on-call, team, manager, hook" in result.stderr
    for words in (["slo", "notify"], ["up", "--no-explorer", "--notify"]):
        missing = CliRunner().invoke(tailspan, [*words, str(tmp_path / "none.yaml")])
        assert missing.exit_code == 2
        (tmp_path / "wrong.yaml").write_text("channels: []\n")
        wrong = CliRunner().invoke(tailspan, [*words, str(tmp_path / "wrong.yaml")])
        assert wrong.exit_code == 2
        assert "wrong.yaml:1: channels: 0 channels; allowed: 1 to 32" in wrong.stderr
