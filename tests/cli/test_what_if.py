import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from analysis.corrected_prediction import Predicted, Reproduced
from analysis.trace_prediction import TraceAnswer, TraceAttainment
from analysis.what_if import POINTS, WhatIfAnswer
from analysis.window_replay import METRICS
from cli.main import tailspan
from cli.questions.answer import answered
from cli.render.what_if_trace import trace_lines
from simulator.dataset import Dataset
from simulator.dataset import run as simulate
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.predictions import predictions
from store.writer import Writer
from telemetry.starts import read, written
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window

SECONDS = 150
CONFIG = FleetConfig(
    duration_s=float(SECONDS), seed=5, replicas=1, workload=Workload(rate_per_s=3.0)
)
START_S = CONFIG.started_unix_ns / 1e9


@cache
def simulated() -> Dataset:
    return simulate(CONFIG)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with a simulated replica."""
    path = tmp_path_factory.mktemp("what-if") / "tailspan.db"
    data = simulated()
    engine = open_database(f"sqlite:///{path}")
    with Writer(engine) as writer:
        writer.submit(data.requests, data.samples, starts=data.starts).result(30)
    engine.dispose()
    return path


@pytest.fixture
def ask(url: str, tmp_path: Path, stored: Path, few_draws: None) -> Callable[..., Result]:
    """Return a function that runs `tailspan what-if` on a database with a simulated replica."""
    shutil.copy(stored, tmp_path / "tailspan.db")

    def invoke(*words: str, from_s: float = START_S) -> Result:
        window = ["--from", str(from_s), "--to", str(START_S + SECONDS)]
        return CliRunner().invoke(
            tailspan, ["what-if", *words, *window, "--database", url], catch_exceptions=False
        )

    return invoke


def test_json_has_the_contracts_keys(ask: Callable[..., Result]) -> None:
    result = ask("--set", "max_num_seqs=64", "--rate", "1.2x", "--format", "json")
    assert result.exit_code == 0
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.keys() >= {
        *("window", "reproduced", "refused", "edits", "now", "predicted", "objectives"),
        *("binds", "extrapolated"),
    }
    assert found["edits"] == ["max_num_seqs=64", "rate=1.2x"]
    for name in METRICS:
        assert list(found["reproduced"][name]) == list(POINTS)
        assert found["reproduced"][name]["p50"].keys() == {"measured", "replayed", "error_ratio"}
        assert found["predicted"][name]["p99"].keys() == {"value", "low", "high"}
    for side in ("now", "predicted"):
        assert found[side]["throughput_rps"] == pytest.approx(3.0, rel=0.35)
        assert "usd_per_hour" in found[side]
    assert {each["slo"] for each in found["objectives"]} >= {"chat"}
    assert found["simulated"] is True


def test_text_names_the_change_its_prediction_and_the_error(ask: Callable[..., Result]) -> None:
    result = ask("--set", "max_num_seqs=2")
    assert result.stdout.startswith("What if max_num_seqs=2?")
    assert "SATURATED" in result.stdout
    assert "95 % interval" in result.stdout
    assert "requests wait for: max_num_seqs" in result.stdout


def test_too_few_requests_are_a_reason_and_exit_status_1(ask: Callable[..., Result]) -> None:
    result = ask("--replicas", "2", from_s=START_S + SECONDS - 5)
    assert result.exit_code == 1
    assert "No prediction" in result.stdout
    assert "needed: at least 100" in result.stdout
    result = ask("--replicas", "2", "--where", "tenant=nobody")
    assert result.exit_code == 1
    assert "No prediction: no request of the range has tenant=nobody" in result.stdout


def test_a_deploy_in_the_range_leaves_out_earlier_requests(
    ask: Callable[..., Result], url: str
) -> None:
    (before,) = simulated().starts
    seats = {"scheduler.max_num_seqs": 128}
    engine = open_database(url)
    with Writer(engine) as writer:
        after = replace(
            before,
            at_unix_ns=before.at_unix_ns + 30 * 10**9,
            arguments=written(read(before.arguments) | seats),
            config="0a1b2c3d",
        )
        writer.submit([], [], starts=[after]).result(30)
    engine.dispose()
    text = ask("--set", "max_num_seqs=64").stdout
    assert "requests left out: received until 60 s after replica sim-0 restarted with other" in text
    assert "(scheduler.max_num_seqs: 256 to 128)" in text
    assert "00:01:30 to 00:02:30 UTC (1m)" in text
    found = json.loads(ask("--set", "max_num_seqs=64", "--format", "json").stdout)
    assert found["window"] == {"from": START_S + 90, "to": START_S + SECONDS}
    assert any("restarted with other arguments" in each for each in found["left_out"])
    refused = ask("--set", "max_num_seqs=64", from_s=START_S + 110)
    assert refused.exit_code == 0
    assert "restarted" not in refused.stdout


def test_too_many_requests_are_refused_before_they_are_read(
    ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.recorded_traffic.MAX_REQUESTS", 100)
    result = ask("--prompt", "2x")
    assert result.exit_code == 1
    assert "allowed: at most 100. Choose a shorter range." in result.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "no change is set"),
        (["--set", "max_num_seqs"], "must be NAME=VALUE"),
        (["--set", "kv_cache_dtype=fp8"], "kv_cache_dtype: not modelled; allowed"),
        (["--set", "max_num_seqs=lots"], "'lots'; allowed: a whole number"),
        (["--rate", "fast"], "must be a factor"),
        (["--rate", "0x"], "allowed: a factor from 0.001x to 1000x"),
        (["--rate", "tenant=nobody-here:2x"], "has no requests; allowed"),
        (["--prompt", "tenant=acme:2x"], "must be a factor"),
        (["--replicas", "0"], "replicas: 0; allowed: 1 to"),
        (["--find", "rate"], "--find and --slo"),
        (["--slo", "chat"], "--find and --slo"),
        (["--sweep", "rate=1x,2x", "--find", "rate", "--slo", "chat"], "use one of them"),
        (["--find", "rate", "--slo", "none"], "allowed: "),
        (["--sweep", "rate=9..1"], "must start above 0"),
    ],
)
def test_wrong_usage_prints_the_allowed_values(
    ask: Callable[..., Result], words: list[str], reason: str
) -> None:
    result = ask(*words)
    assert result.exit_code == 2
    assert reason in result.output


@pytest.fixture
def with_unknown(url: str, ask: Callable[..., Result]) -> None:
    """Store a third of the requests again, from a server that sent neither start nor samples."""
    rows = [each for each in simulated().requests if each.decode_s is not None][::3]
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit(
            [
                replace(each, replica="evil-0", span_id=f"{number:016x}", trace_id=f"{number:032x}")
                for number, each in enumerate(rows, start=1)
            ],
            [],
        ).result(30)
    engine.dispose()


@pytest.mark.usefixtures("with_unknown")
def test_a_replica_is_predicted_if_another_one_cannot_be_replayed(
    ask: Callable[..., Result],
) -> None:
    replica = simulated().starts[0].replica
    refused = ask("--set", "max_num_seqs=64")
    assert "No prediction: replica evil-0: its engine's arguments were" in refused.stdout
    assert refused.exit_code == 1
    of_one = ("--where", f"replica={replica}")
    found = ask("--set", "max_num_seqs=64", *of_one)
    assert "requests left out: replica evil-0: its engine's arguments" in found.stdout
    assert found.exit_code == 0
    assert ask("--sweep", "max_num_seqs=32,64", *of_one).exit_code == 0
    for words in (
        ("--replicas", "2"),
        ("--sweep", "replicas=1,2"),
        ("--find", "replicas", "--slo", "chat"),
    ):
        assert "No prediction: replica evil-0" in ask(*words, *of_one).stdout


def test_a_sweep_prints_one_row_per_value(ask: Callable[..., Result]) -> None:
    result = ask("--sweep", "max_num_seqs=1,64")
    assert result.exit_code == 0
    rows = [line.split()[0] for line in result.stdout.splitlines() if line]
    assert {"now", "1", "64"} <= set(rows)
    assert "SATURATED" in result.stdout
    (roomy,) = [line for line in result.stdout.splitlines() if line.startswith("64 ")]
    assert re.search(r" \[[0-9.]+ to [0-9.]+ m?s\]  ", roomy)
    assert re.search(r"% \[[0-9.]+%, [0-9.]+%\]  ", roomy)
    found = json.loads(ask("--sweep", "max_num_seqs=1,64", "--format", "json").stdout)
    assert [each["value"] for each in found["points"]] == ["1", "64"]
    assert found["points"][0]["saturated"]
    assert found["reproduced"]["ttft_s"]["p50"]["measured"] > 0


def test_a_sweep_shows_rejected_requests_and_the_objectives_that_are_left(
    ask: Callable[..., Result],
) -> None:
    """No request fits into 16 tokens, so no objective has a request at this value."""
    result = ask("--sweep", "max_model_len=4096,16")
    assert result.exit_code == 0
    table = [re.split(r"  +", line) for line in result.stdout.split("\n\n")[1].splitlines()]
    header, now, roomy, small = table[:4]
    assert {len(each) for each in table[:4]} == {len(header)}
    chat, rejected = header.index("chat"), header.index("rejected")
    assert now[chat].endswith("%")
    assert roomy[chat].endswith("%]")
    assert (small[0], small[chat]) == ("16", "-")
    found = json.loads(ask("--sweep", "max_model_len=4096,16", "--format", "json").stdout)
    assert small[rejected] == f"{found['requests']:,}"
    assert ask("--sweep", "max_model_len=16,4096").exit_code == 0


def test_a_search_prints_what_it_tried(ask: Callable[..., Result]) -> None:
    result = ask("--find", "replicas", "--slo", "chat", "--rate", "2x")
    assert result.exit_code == 0
    assert "The fewest replicas to meet SLO chat" in result.stdout
    table = result.stdout.split("\n\n")[1].splitlines()
    assert table[0].split("  ")[0] == "replicas"
    assert "95 % interval" in table[0]
    (resampled,) = [line for line in table if "[" in line]  # only the found value has an interval
    assert resampled.split()[0] == result.stdout.splitlines()[0].rpartition(" ")[2]
    found = json.loads(ask("--find", "rate", "--slo", "chat", "--format", "json").stdout)
    assert found["value"] == found["tried"][-1]["value"] or not found["tried"][-1]["met"]
    assert found["answer"]["objectives"]


@pytest.mark.parametrize(
    "words",
    [
        ("--find", "replicas", "--slo", "chat"),
        ("--sweep", "max_num_seqs=32,64"),
        ("--set", "max_num_seqs=64"),
    ],
)
def test_a_range_that_is_not_reproduced_has_exit_status_1(
    ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("analysis.what_if.MAX_ERROR", {"p50": -1.0})
    result = ask(*words)
    assert result.exit_code == 1
    assert "No prediction: The replay of the unchanged window is" in result.stdout
    found = json.loads(ask(*words, "--format", "json").stdout)
    assert found["refused"].startswith("The replay of the unchanged window is")


TRACE = "".join(
    f'{{"timestamp": {number * 250}, "input_length": 300, "output_length": 40}}\n'
    for number in range(200)
)


def test_a_trace_without_an_interval_prints_the_share_alone() -> None:
    measured = {name: dict.fromkeys(POINTS, Reproduced(0.1, 0.1)) for name in METRICS}
    predicted = {name: dict.fromkeys(POINTS, Predicted(0.1)) for name in METRICS}
    window = WhatIfAnswer(
        window=Window(0, 10**9),
        requests=1,
        edits=(),
        reproduced=measured,
        refused=None,
        now={},
        throughput_rps=1.0,
        all_rps=1.0,
        usd_per_hour=None,
        left_out={},
        simulated=False,
    )
    shares = [TraceAttainment("chat", 0.99, Predicted(0.99996))]
    answer = TraceAnswer(window, 1, 1.0, (), predicted, shares)
    assert "SLO chat: 99.996% predicted" in trace_lines(answer, "trace.jsonl")


def test_a_trace_is_replayed_on_the_engines_of_the_range(
    ask: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    result = ask("--trace", str(path))
    assert result.exit_code == 0
    assert "What would trace.jsonl do?" in result.stdout
    assert "200 requests in 49.8s, 4.02 requests/s" in result.stdout
    assert "measured" not in result.stdout
    assert "assumed: no prompt hits the prefix cache" in result.stdout
    found = json.loads(ask("--trace", str(path), "--replicas", "2", "--format", "json").stdout)
    assert found["trace"] == {
        "requests": 200,
        "length_s": 49.75,
        "rate_rps": pytest.approx(4.02, abs=0.01),
        "engines": 2,
    }
    assert found["edits"] == ["replicas=2"]
    assert found["predicted"]["ttft_s"]["p99"].keys() == {"value", "low", "high"}
    assert found["objectives"][0]["good_ratio_now"] is None


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("{}", (), "line 1: timestamp: missing; the line has none"),
        (TRACE, ("--sweep", "rate=1,2"), "--trace excludes --sweep, --find and --where"),
        (TRACE, ("--where", "tenant=acme"), "--trace excludes --sweep, --find and --where"),
        (TRACE, ("--rate", "tenant=acme:2x"), "--rate tenant=acme: a trace has no tenants"),
    ],
)
def test_a_trace_that_cannot_be_asked_about_is_refused(
    ask: Callable[..., Result], tmp_path: Path, content: str, words: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    result = ask("--trace", str(path), *words)
    assert result.exit_code == 2
    assert message in result.stderr


def _kept(url: str) -> list[str]:
    engine = open_database(url)
    found = [each.change for each in predictions(engine)]
    engine.dispose()
    return found


def test_a_prediction_that_a_deploy_can_confirm_is_kept(
    ask: Callable[..., Result], url: str
) -> None:
    found = ask("--set", "max_num_seqs=64", "--format", "json")
    assert json.loads(found.stdout)["track_record"] is None
    ask("--set", "max_num_seqs=63", "--rate", "1.1x")
    ask("--set", "max_num_seqs=62", "--where", "replica=sim-0")
    ask("--sweep", "max_num_seqs=60,61")
    assert _kept(url) == ["max_num_seqs=64"]


def test_the_json_api_keeps_no_prediction(
    ask: Callable[..., Result], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON API only reads."""
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    ends = [("from", str(START_S)), ("to", str(START_S + SECONDS))]
    found = answered("what-if", [("set", "max_num_seqs=64"), *ends])
    assert json.loads(found.text)["predicted"] is not None
    assert _kept(url) == []


def test_a_database_that_cannot_be_written_gives_a_prediction_all_the_same(
    ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("the database cannot be written: read-only")

    monkeypatch.setattr("analysis.stored_predictions.store_prediction", refuse)
    found = ask("--set", "max_num_seqs=64")
    assert found.exit_code == 0
    assert "95 % interval" in found.stdout
    assert "The prediction was not stored: the database cannot be written" in found.stderr
