"""Replays in a child process, and the ways in which the child may fail."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from analysis.counterfactual import replay_process
from analysis.counterfactual.explain import with_replayed_shares
from analysis.counterfactual.replay_process import replayed
from analysis.explain import explain_question
from diagnosis.explanation import Explanation, Method
from telemetry import child_process
from tests.analysis.counterfactual.longer_outputs import question

Child = Callable[[str], None]


@pytest.fixture(scope="module")
def accounted(stored: Engine) -> Explanation:
    return explain_question(stored, question())


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    """Run Python code in the place of the child."""

    def run(code: str) -> None:
        monkeypatch.setattr(child_process, "command", lambda _: [sys.executable, "-c", code])

    return run


def test_a_child_finds_the_same_shares(stored: Engine, accounted: Explanation) -> None:
    steps: list[bool] = []
    found = replayed(stored, accounted, lambda: steps.append(True))
    assert found == with_replayed_shares(stored, accounted)
    assert found.method is Method.COUNTERFACTUAL
    assert len(steps) > 10


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit(3)", "its process ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended with status -9"),
        ("print('..', end='')", "its process ended with status 0"),
        ("print('=cut off', end='')", "its process ended with status 0"),
        ("print('!it needs more than 4 GiB of memory', end='')", "it needs more than 4 GiB"),
    ],
)
def test_without_an_answer_the_accounting_remains_with_the_reason(
    stored: Engine, accounted: Explanation, child: Child, code: str, reason: str
) -> None:
    child(code)
    found = replayed(stored, accounted)
    assert found.not_replayed is not None
    assert found.not_replayed.startswith(reason)
    assert found == replace(accounted, not_replayed=found.not_replayed)


def test_a_child_that_hangs_is_ended(
    stored: Engine, accounted: Explanation, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_process, "MOST_S", 0.5)
    child("import time; time.sleep(600)")
    assert replayed(stored, accounted).not_replayed == "it took longer than 0.5 s"


def test_a_child_that_cannot_start_is_a_reason(
    stored: Engine, accounted: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "command", lambda _: ["/no/such/program"])
    found = replayed(stored, accounted)
    assert found.not_replayed == "its process cannot be started: No such file or directory"


def test_a_child_that_needs_too_much_memory_says_so(
    stored: Engine, accounted: Explanation, child: Child
) -> None:
    child(
        "import analysis.counterfactual.replay_process as p\n"
        "p._replayed_here = lambda *_: bytearray(2 * p.MOST_BYTES)\n"
        "p.main()"
    )
    assert replayed(stored, accounted).not_replayed == "it needs more than 4 GiB of memory"


def test_a_missing_database_is_a_reason(accounted: Explanation, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/missing.db")
    assert str(replayed(engine, accounted).not_replayed).startswith("there is no database at ")


def test_a_cause_that_no_replay_can_remove_starts_no_child(
    stored: Engine, accounted: Explanation, child: Child
) -> None:
    child("import sys; sys.exit(3)")
    restart = replace(accounted, causes=[replace(accounted.causes[0], id="cold_start")])
    assert "cannot remove" in str(replayed(stored, restart).not_replayed)
    nothing = replace(accounted, causes=(), others=())
    assert replayed(stored, nothing) is nothing
