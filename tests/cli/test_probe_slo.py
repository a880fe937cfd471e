import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from cli.main import tailspan
from tests.alerts.probe_objective import DOCUMENT
from tests.analysis.outside.probed import LENGTH_S, START_S, probes, store
from tests.ui.opening import APP, markup

END_S = START_S + LENGTH_S + 60


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/probed.db"
    store(found, list(probes()), [])
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "outside.yaml"
    where = 'where: endpoint == "claude", by: [region]'
    path.write_text(DOCUMENT.format(events="probes", where=where, good="wait_s <= 5"))
    return path


def _slo(*words: str) -> Result:
    return CliRunner().invoke(tailspan, ["slo", *words], catch_exceptions=False)


def test_the_status_has_a_budget_for_each_region(url: str, file: Path) -> None:
    asked = ("status", str(file), "--at", str(END_S), "--database", url)
    lines = [json.loads(each) for each in _slo(*asked, "--format", "json").stdout.splitlines()]
    found = {(each["group"] or {}).get("region"): each for each in lines}
    assert (found["ap-south"]["events"], found["ap-south"]["bad"]) == (120, 10)
    assert (found["eu-west"]["events"], found["eu-west"]["bad"]) == (120, 0)
    assert {each["counted_in"] for each in lines} == {"probes"}
    assert {each["blind"] for each in lines} == {None}
    assert 'outside{region="ap-south"}: 10 bad of 120' in _slo(*asked).stdout


def test_an_objective_that_selects_no_probe_is_blind(url: str, file: Path) -> None:
    file.write_text(file.read_text().replace("claude", "cluade").replace(", by: [region]", ""))
    printed = _slo("status", str(file), "--at", str(END_S), "--database", url).stdout
    assert "no probes counted yet" in printed or "0 good of 0 probes" in printed
    assert "probes arrive, but none of them counts." in printed
    assert "tailspan outside --format json" in printed


def test_rules_are_for_tailspan_only(file: Path) -> None:
    file.write_text(file.read_text().replace(", by: [region]", ""))
    assert _slo("check", str(file)).exit_code == 0
    rules = _slo("rules", str(file)).stdout
    assert "page=outside&endpoint=claude" in rules
    refused = _slo("rules", str(file), "--for", "vllm")
    assert refused.exit_code == 1
    assert "vLLM's histograms do not count probes; allowed: objectives" in refused.stderr


def test_the_slos_page_shows_it(url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    monkeypatch.setenv(OBJECTIVES_KEY, str(file))
    test = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in {"page": "slos", "from": str(START_S), "to": str(END_S)}.items():
        test.query_params[name] = value
    shown = markup(test.run())
    assert "whole wait ≤ 5 s" in shown
    assert "endpoint claude" in shown
    assert "ap-south" in shown
