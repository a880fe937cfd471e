from dataclasses import replace

import pytest
from sqlalchemy import Engine

from analysis.answer_process import ChildAnswer
from analysis.counterfactual import replay_process
from analysis.counterfactual.replay_process import replayed
from diagnosis.explanation import Explanation


def test_a_child_finds_the_same_shares(
    stored: Engine, accounted: Explanation, tested: Explanation
) -> None:
    steps: list[bool] = []
    assert replayed(stored, accounted, lambda: steps.append(True)) == tested
    assert len(steps) > 10


def test_without_an_answer_the_accounting_remains_with_the_reason(
    stored: Engine, accounted: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = "its process ended with status 3"
    monkeypatch.setattr(replay_process, "answer_in_child", lambda *_: ChildAnswer(None, problem))
    assert replayed(stored, accounted) == replace(accounted, not_replayed=problem)


def test_a_cause_that_no_replay_can_remove_starts_no_child(
    stored: Engine, accounted: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_process, "answer_in_child", lambda *_: 1 / 0)
    restart = replace(accounted, causes=[replace(accounted.causes[0], id="cold_start")])
    assert "cannot remove" in str(replayed(stored, restart).not_replayed)
    nothing = replace(accounted, causes=(), others=())
    assert replayed(stored, nothing) is nothing
