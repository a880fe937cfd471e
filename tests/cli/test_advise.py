import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from simulator.dataset import run as simulate
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.writer import Writer

SECONDS = 100
CONFIG = FleetConfig(
    duration_s=float(SECONDS), seed=6, replicas=1, workload=Workload(rate_per_s=3.0)
)
UNKNOWN = "replica evil-0: its engine's arguments were not reported"
START_S = CONFIG.started_unix_ns / 1e9


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with a simulated replica."""
    url = f"sqlite:///{tmp_path_factory.mktemp('advise')}/tailspan.db"
    data = simulate(CONFIG)
    completed = [each for each in data.requests if each.decode_s is not None]
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit(data.requests, data.samples, starts=data.starts).result(30)
        # Two requests of a server that sent neither its start nor samples.
        of_unknown = [
            replace(each, replica="evil-0", span_id=f"{number:016x}", trace_id=f"{number:032x}")
            for number, each in enumerate(completed[10:12], start=1)
        ]
        writer.submit(of_unknown, []).result(30)
    engine.dispose()
    return url


@pytest.fixture
def ask(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs `tailspan advise` on a database with a simulated replica."""
    monkeypatch.setattr("analysis.advice.advise.__defaults__", (3, lambda: None))

    def invoke(*words: str, to_s: float = START_S + SECONDS) -> Result:
        window = ["--from", str(START_S), "--to", str(to_s)]
        return CliRunner().invoke(
            tailspan, ["advise", *words, *window, "--database", url], catch_exceptions=False
        )

    return invoke


def test_each_lever_has_its_effect_its_cost_and_its_precondition(
    ask: Callable[..., Result],
) -> None:
    found = json.loads(ask("--format", "json").stdout)
    assert found["refused"] is None
    assert found["metric"] == "e2e_s"
    for lever in found["levers"]:
        assert lever["gain"]["p99"].keys() == {"value", "low", "high"}
        assert lever["precondition"]
        assert lever["usd_per_hour_now"] == pytest.approx(found["levers"][0]["usd_per_hour_now"])
    assert any("smaller model" in each for each in found["unknown"])
    assert found["left_out"][UNKNOWN] == 2


def test_the_table_has_helpful_and_useless_levers(ask: Callable[..., Result]) -> None:
    result = ask("--metric", "ttft")
    assert result.exit_code == 0
    assert "No gain at P99 of TTFT here" in result.stdout
    assert "Not judged: placement" in result.stdout
    assert "simulated data" in result.stdout


def test_too_few_requests_are_refused_with_the_reason(ask: Callable[..., Result]) -> None:
    result = ask(to_s=START_S + 5)
    assert result.exit_code == 1
    assert result.stdout.startswith("No advice: ")
    assert "needed: at least 100" in result.stdout
    assert json.loads(ask("--format", "json", to_s=START_S + 5).stdout)["refused"]
