import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

import simulator.live
from cli.commands.simulate import simulate
from simulator.fault import CAUSES
from simulator.live import SimulationPlan
from simulator.sending import Sent


@dataclass
class Runs:
    """Records the simulations' plans instead of running them."""

    plans: list[SimulationPlan] = field(default_factory=list)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    seen = Runs()

    def run(plan: SimulationPlan, *_args: object) -> Sent:
        seen.plans.append(plan)
        return Sent()

    monkeypatch.setattr(simulator.live, "run", run)
    return seen


def test_a_simulation_starts_with_an_hour_of_past_and_an_open_incident(runs: Runs) -> None:
    result = CliRunner().invoke(simulate, [])
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    (fault,) = plan.fleet.faults
    assert (plan.backfill_s, plan.duration_s, plan.fleet.replicas) == (3600.0, None, 2)
    assert plan.fleet.workload.rate_per_s == 10.0
    assert (fault.cause, fault.start_s, fault.end_s) == (
        "prefill_interference",
        52 * 60.0,
        float("inf"),
    )


def test_options_reach_the_plan(runs: Runs) -> None:
    options = "--replicas 3 --rate 2 --seed 9 --backfill 5m --duration 90s --incident engine_stall"
    result = CliRunner().invoke(simulate, [*options.split(), "--router", "round_robin"])
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    assert (plan.backfill_s, plan.duration_s, plan.fleet.seed) == (300.0, 90.0, 9)
    assert (plan.fleet.workload.rate_per_s, plan.fleet.router) == (6.0, "round_robin")
    assert plan.fleet.faults[0].start_s == 0.0


def test_prefill_and_decode_may_be_on_different_servers(runs: Runs) -> None:
    result = CliRunner().invoke(simulate, ["--replicas", "4", "--prefill", "1"])
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    names = [plan.fleet.name_of(number) for number in range(plan.fleet.replicas)]
    assert names == ["sim-prefill-0", "sim-decode-0", "sim-decode-1", "sim-decode-2"]
    assert [fault.cause for fault in plan.fleet.faults] == ["kv_transfer"]


def test_faults_reach_the_plan(runs: Runs, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    options = ["--fault", "engine_stall:1.5@40m+10m", "--fault", "tenant_flood", "--truth", truth]
    result = CliRunner().invoke(simulate, list(map(str, options)))
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    assert plan.truth == truth
    parts = [(f.cause, f.severity, f.start_s, f.end_s) for f in plan.fleet.faults]
    assert parts == [
        ("engine_stall", 1.5, 2400.0, 3000.0),
        ("tenant_flood", 1.0, 3120.0, float("inf")),
    ]


def test_a_fault_and_an_incident_can_be_simulated_together(runs: Runs) -> None:
    options = ["--incident", "cold_start", "--severity", "2", "--fault", "kv_transfer@10s"]
    assert CliRunner().invoke(simulate, options).exit_code == 0
    parts = [(f.cause, f.severity, f.start_s) for f in runs.plans[0].fleet.faults]
    assert parts == [("kv_transfer", 1.0, 10.0), ("cold_start", 2.0, 3120.0)]
    assert CliRunner().invoke(simulate, ["--incident", "none"]).exit_code == 0
    assert runs.plans[1].fleet.faults == ()


def test_all_causes_are_listed(runs: Runs) -> None:
    result = CliRunner().invoke(simulate, ["--list-faults"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()[1:]] == sorted(CAUSES)
    assert not runs.plans


def test_a_trace_is_replayed(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,10\n2,200,20\n")
    result = CliRunner().invoke(simulate, ["--trace", str(file)])
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    assert [tuple(row) for row in plan.fleet.workload.trace] == [(0.0, 100, 10), (2.0, 200, 20)]
    assert plan.fleet.faults == ()
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,many,10\n")
    result = CliRunner().invoke(simulate, ["--trace", str(file)])
    assert result.exit_code == 2
    assert "line 2: contexttokens = 'many'; allowed: a whole number" in result.output


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--incident", "gremlins"], ["--incident", "gremlins", "prefill_interference"]),
        (["--rate", "0"], ["--rate", "0.0", "x>0"]),
        (["--rate", "nan"], ["--rate", "nan", "finite"]),
        (["--prefill", "2"], ["prefill_replicas: 2; allowed: 0 to 1"]),
        (["--prefill", "1", "--fault", "lora_swap"], ["fault lora_swap", "allowed: kv_transfer"]),
        (["--backfill", "soon"], ["--backfill", "soon", "15m"]),
        (["--endpoint", "localhost:4318"], ["endpoint", "localhost:4318", "http://HOST:PORT"]),
        (["--fault", "gremlins"], ["--fault 'gremlins'", "unknown cause", "prefill_interference"]),
        (["--fault", "engine_stall:-1"], ["--fault", "severity '-1'", "above 0"]),
        (["--fault", "engine_stall:hard"], ["engine_stall:hard", "'hard'", "1.5"]),
        (["--fault", "engine_stall@soon"], ["engine_stall@soon", "'soon'", "15m"]),
        (["--fault", "engine_stall@1m+0"], ["engine_stall@1m+0", "duration 0", "above 0"]),
        (["--fault", "stall, please"], ["stall, please", "CAUSE[:SEVERITY][@START][+DURATION]"]),
        (["--trace", "nowhere.csv"], ["--trace", "nowhere.csv"]),
        (["--router", "random"], ["--router", "random", "round_robin"]),
    ],
)
def test_a_wrong_option_is_reported_with_its_value_and_the_allowed_ones(
    runs: Runs, options: list[str], parts: list[str]
) -> None:
    result = CliRunner().invoke(simulate, options)
    assert result.exit_code == 2
    assert not runs.plans
    for part in parts:
        assert part in result.output


def test_a_signal_asks_for_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stopped = []

    def run(_plan: SimulationPlan, stop: threading.Event, *_args: object) -> Sent:
        for number in (signal.SIGINT, signal.SIGTERM):
            stop.clear()
            signal.raise_signal(number)
            stopped.append(stop.is_set())
        return Sent()

    monkeypatch.setattr(simulator.live, "run", run)
    assert CliRunner().invoke(simulate, []).exit_code == 0
    assert stopped == [True, True]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
