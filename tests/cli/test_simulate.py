import signal
import threading
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

import simulator.live
from cli.simulate import simulate
from simulator.live import Plan
from simulator.sending import Sent


@dataclass
class Runs:
    """The plans that were to be carried out."""

    plans: list[Plan] = field(default_factory=list)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What would have been run, without running it."""
    seen = Runs()

    def run(plan: Plan, *_args: object) -> Sent:
        seen.plans.append(plan)
        return Sent()

    monkeypatch.setattr(simulator.live, "run", run)
    return seen


def test_it_opens_with_an_hour_of_past_and_an_incident_under_way(runs: Runs) -> None:
    """The defaults are what `make run` shows."""
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
    """Durations with a unit or without; an incident longer ago than the past begins with it."""
    options = "--replicas 3 --rate 2 --seed 9 --backfill 5m --duration 90 --incident engine_stall"
    result = CliRunner().invoke(simulate, [*options.split(), "--router", "round_robin"])
    assert result.exit_code == 0, result.output
    (plan,) = runs.plans
    assert (plan.backfill_s, plan.duration_s, plan.fleet.seed) == (300.0, 90.0, 9)
    assert (plan.fleet.workload.rate_per_s, plan.fleet.router) == (6.0, "round_robin")
    assert plan.fleet.faults[0].start_s == 0.0


def test_no_incident_is_a_choice(runs: Runs) -> None:
    """`none` leaves the fleet alone."""
    assert CliRunner().invoke(simulate, ["--incident", "none"]).exit_code == 0
    assert runs.plans[0].fleet.faults == ()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--incident", "gremlins"], ["--incident", "gremlins", "prefill_interference"]),
        (["--rate", "0"], ["--rate", "0.0", "x>0"]),
        (["--rate", "nan"], ["rate_per_s", "nan", "more than 0"]),
        (["--replicas", "0"], ["--replicas", "0", "x>=1"]),
        (["--backfill", "soon"], ["--backfill", "soon", "15m"]),
        (["--backfill", "-5m"], ["--backfill", "-5m"]),
        (["--endpoint", "localhost:4318"], ["endpoint", "localhost:4318", "http://HOST:PORT"]),
        (["--router", "random"], ["--router", "random", "round_robin"]),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(
    runs: Runs, options: list[str], told: list[str]
) -> None:
    """Exit 2, and one line that says it all."""
    result = CliRunner().invoke(simulate, options)
    assert result.exit_code == 2
    assert not runs.plans
    for part in told:
        assert part in result.output


def test_a_signal_asks_for_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM and SIGINT stop the run, which flushes; both are as before afterwards."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stopped = []

    def run(_plan: Plan, stop: threading.Event, *_args: object) -> Sent:
        for number in (signal.SIGINT, signal.SIGTERM):
            stop.clear()
            signal.raise_signal(number)
            stopped.append(stop.is_set())
        return Sent()

    monkeypatch.setattr(simulator.live, "run", run)
    assert CliRunner().invoke(simulate, []).exit_code == 0
    assert stopped == [True, True]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_help_shows_examples() -> None:
    """Where a newcomer looks first."""
    assert "Examples:" in CliRunner().invoke(simulate, ["--help"]).output
