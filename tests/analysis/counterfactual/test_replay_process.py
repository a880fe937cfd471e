from dataclasses import replace

import pytest
from sqlalchemy import Engine

from analysis.answer_process import ChildAnswer
from analysis.counterfactual import replay_process
from analysis.counterfactual.explain import with_replayed_shares
from analysis.counterfactual.replay_process import replayed
from analysis.explain import explain_question
from diagnosis.explanation import Explanation, ShareMethod
from tests.analysis.counterfactual.longer_outputs import question


@pytest.fixture(scope="module")
def accounted(stored: Engine) -> Explanation:
    return explain_question(stored, question())


def test_a_child_finds_the_same_shares(stored: Engine, accounted: Explanation) -> None:
    steps: list[bool] = []
    found = replayed(stored, accounted, lambda: steps.append(True))
    assert found == with_replayed_shares(stored, accounted)
    assert found.method is ShareMethod.COUNTERFACTUAL
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
