import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from analysis.compare import work_terms
from cli.commands.compare import METRICS
from cli.main import tailspan
from store.database import open_database
from store.predictions import Prediction, store_prediction
from tests.analysis.compare.two_windows import (
    SECONDS,
    START_S,
    store,
    store_canary,
    store_deploy,
)

BEFORE = f"{START_S}/{START_S + SECONDS}"
AFTER = f"{START_S + 600}/{START_S + 600 + SECONDS}"
SIDES = ("--before", BEFORE, "--after", AFTER)
KEYS = {
    *("verdict", "metric", "quantile", "before_s", "after_s", "total_s", "mix_s", "load_s"),
    *("change_s", "change_low_s", "change_high_s", "compared_ratio", "curve", "coefficients"),
    "reasons",
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """Return a function that compares two windows; the server of the second is 20 % slower."""
    url = f"sqlite:///{tmp_path_factory.mktemp('compare') / 'tailspan.db'}"
    store(url)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(
            tailspan, ["compare", *words, "--database", url], catch_exceptions=False
        )

    return invoke


def test_a_slower_server_is_worse_and_stops_a_pipeline(ask: Callable[..., Result]) -> None:
    result = ask(*SIDES, "--metric", "tpot")
    assert result.exit_code == 1
    first, *_ = result.stdout.splitlines()
    assert first.startswith("TPOT P95 is 20 % worse [")
    assert " at the same mix and load: " in first
    for part in ("mix: other requests", "load: other work", "change at the same mix"):
        assert part in result.stdout
    assert "Total change, with the load that the change itself caused (by replay): +" in (
        result.stdout
    )
    assert "engine steps take 120" in result.stdout


def test_the_table_contains_the_values_of_the_finding(ask: Callable[..., Result]) -> None:
    printed = ask(*SIDES, "--metric", "tpot", "--fast").stdout
    first, *_ = printed.splitlines()
    after, _, before = first.rpartition(": ")[2].rstrip(".").partition(" instead of ")
    rows = {each[:35].rstrip(): each[35:].split("  ") for each in printed.splitlines()}
    assert before in [each.strip() for each in rows["= before, at the mix and load after"]]
    assert after in [each.strip() for each in rows["= after, comparable requests"]]
    assert "mix: requests without a counterpart" in rows
    assert "e+0" not in printed
    assert "predicted" not in printed


def test_json_has_the_contracts_keys(ask: Callable[..., Result]) -> None:
    result = ask(*SIDES, "--metric", "tpot", "--quantile", "p50", "--format", "json", "--fast")
    assert result.exit_code == 1
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.keys() >= KEYS
    assert found["verdict"] == "worse"
    assert found["total_s"] == pytest.approx(
        found["mix_s"] + found["load_s"] + found["change_s"], abs=1e-12
    )
    assert found["change_low_s"] < found["change_s"] < found["change_high_s"]
    assert found["curve"][0].keys() == {
        *("load", "before_s", "after_s", "low_s", "high_s", "requests")
    }
    assert found["coefficients"]["gamma"]["after_s"]["value"] == pytest.approx(8.4e-3, rel=0.02)
    assert found["total_change_s"] is None
    assert found["predicted"] is None


def test_one_look_has_a_narrower_interval(ask: Callable[..., Result]) -> None:
    words = (*SIDES, "--metric", "tpot", "--format", "json", "--fast")
    every, one = (json.loads(ask(*words, *more).stdout) for more in ((), ("--one-look",)))
    assert (every["looks"], one["looks"]) == ("all", "one")
    assert every["change_s"] == one["change_s"]
    assert every["change_low_s"] < one["change_low_s"]


def test_a_canary_is_compared_with_the_other_replica(ask: Callable[..., Result]) -> None:
    among = ("--from", str(START_S), "--to", str(START_S + SECONDS), "--metric", "tpot", "--fast")
    result = ask(*among, "--before-where", "replica=sim-0", "--after-where", "replica=sim-1")
    assert result.exit_code == 0
    assert "TPOT P95 is no worse" in result.stdout
    assert "replica=sim-1" in result.stdout


def test_two_versions_of_one_range_are_compared(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tailspan.db'}"
    store_canary(url)
    words = ["compare", "--from", str(START_S), "--to", str(START_S + SECONDS), "--fast"]
    words += ["--before-where", "version=0.31.0", "--after-where", "version=0.32.0"]
    words += ["--metric", "tpot", "--database", url]
    result = CliRunner().invoke(tailspan, words, catch_exceptions=False)
    assert result.exit_code == 1
    assert "version=0.32.0" in result.stdout


def test_the_margin_decides(ask: Callable[..., Result]) -> None:
    result = ask(*SIDES, "--metric", "tpot", "--margin", "0.3", "--fast")
    assert result.exit_code == 0
    assert "no worse" in result.stdout
    assert "the margin is 30 %" in result.stdout


def test_an_empty_range_is_undecided_and_passes(ask: Callable[..., Result]) -> None:
    result = ask("--before", "5/10", "--after", AFTER)
    assert result.exit_code == 0
    assert result.stdout.startswith("Undecided: 0 requests before; a P95 needs at least 100.")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "nothing to compare; set --before and --after, or --before-where"),
        (["--before", BEFORE], "set both, as FROM/TO"),
        (["--before", "5", "--after", AFTER], "--before '5': must be FROM/TO"),
        (["--before", "10/5", "--after", AFTER], "--before '10/5': must end after it begins"),
        (["--before", "x/y", "--after", AFTER], "'x' is not a time; allowed: unix seconds"),
        (["--before", BEFORE, "--after", BEFORE], "overlap"),
        ([*SIDES, "--last", "1h"], "exclude --last, --from and --to"),
        (["--before-where", "replica=a"], "nothing to compare"),
        (
            [*SIDES, "--before-where", "colour=blue"],
            "--before-where 'colour=blue': unknown label 'colour'; allowed",
        ),
        ([*SIDES, "--after-where", "replica"], "--after-where 'replica': must be LABEL=VALUE"),
        ([*SIDES, "--metric", "first_content"], "'first_content' is not one of"),
        ([*SIDES, "--where", "replica=a", "--after-where", "replica=b"], "selects the requests"),
        ([*SIDES, "--margin", "nan"], "margin nan; allowed: above 0"),
        ([*SIDES, "--objectives", "/no/such/file"], "--objectives: "),
    ],
)
def test_wrong_usage_prints_the_allowed_values(
    ask: Callable[..., Result], words: list[str], reason: str
) -> None:
    result = ask(*words)
    assert result.exit_code == 2
    assert reason in result.output


def test_each_latency_can_be_chosen() -> None:
    assert set(METRICS) == set(work_terms.METRICS)


def test_a_prediction_of_the_change_is_beside_what_came(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tailspan.db'}"
    store_deploy(url)
    engine = open_database(url)
    asked_ns = (START_S + 100) * 10**9
    predicted = '{"tpot": {"p95": [0.0, -0.01, 0.01]}}'
    store_prediction(
        engine, Prediction(asked_ns, "max_num_seqs=64", 0, 1, predicted, simulated=True)
    )
    engine.dispose()
    words = ["compare", *SIDES, "--metric", "tpot", "--fast", "--database", url]
    text = CliRunner().invoke(tailspan, words, catch_exceptions=False).stdout
    assert (
        "What-if predicted +0.0 % [-1.0, +1.0] for TPOT P95 with max_num_seqs=64 (prediction from"
        " 2025-11-20 10:21:40 UTC). Measured, including the effect of the load: +"
    ) in text
    assert "outside the interval." in text
    printed = CliRunner().invoke(tailspan, [*words, "--format", "json"], catch_exceptions=False)
    found = json.loads(printed.stdout)["predicted"]
    assert found["measured_ratio"] > 0.1
    assert (found["change"], found["contained"]) == ("max_num_seqs=64", False)
