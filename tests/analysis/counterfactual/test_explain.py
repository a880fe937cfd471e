"""Shares and predictions by replay, for explanations that are read from a store."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from analysis.counterfactual import explain as module
from analysis.counterfactual.explain import with_replayed_shares
from analysis.counterfactual.shares import Tails
from analysis.explain import explain_question
from diagnosis.claim import Lever
from diagnosis.explanation import Explanation, ExplanationVerdict, ShareMethod
from diagnosis.explanation_json import as_json
from diagnosis.question import Metric, Question
from store.queries import request_count
from tests.analysis.counterfactual.longer_outputs import CONFIG, question

pytestmark = pytest.mark.usefixtures("few_resamples")


def test_the_shares_come_from_a_replay_and_have_intervals(
    accounted: Explanation, tested: Explanation
) -> None:
    assert accounted.method is ShareMethod.ACCOUNTING
    assert as_json(accounted)["reproduced"] is None
    assert accounted.causes[0].low is None

    assert tested.method is ShareMethod.COUNTERFACTUAL
    assert tested.not_replayed is None
    first = tested.causes[0]
    assert first.id == "longer_outputs"
    assert first.low is not None
    assert first.high is not None
    assert first.low <= first.share <= first.high
    printed = as_json(tested)
    assert printed["method"] == "counterfactual"
    assert printed["unexplained"]["low"] <= printed["unexplained"]["share"]
    assert printed["causes"][0]["share_low"] == first.low
    assert printed["reproduced"]["now_s"]["replayed"] == pytest.approx(
        printed["reproduced"]["now_s"]["measured"], rel=0.1
    )


@pytest.mark.parametrize("named", [[], ["engine_stall"]])
def test_a_cause_that_seemed_too_small_is_tested_if_a_part_is_unexplained(
    stored: Engine, accounted: Explanation, named: list[str]
) -> None:
    (true,) = [cause for cause in accounted.causes if cause.id == "longer_outputs"]
    others = [replace(true, share=0.0)]
    causes = [replace(true, id=each) for each in named]
    found = with_replayed_shares(stored, replace(accounted, causes=causes, others=others))
    assert [cause.id for cause in found.causes] == ["longer_outputs"]
    assert found.causes[0].share > 0.8


def test_the_filter_selects_only_the_slow_requests(stored: Engine, tested: Explanation) -> None:
    tenant = CONFIG.workload.tenants[0].name
    one = with_replayed_shares(stored, explain_question(stored, question(tenant=tenant)))
    assert one.causes[0].id == tested.causes[0].id
    assert one.replay is not None
    assert tested.replay is not None
    assert one.replay.requests == tested.replay.requests  # every request is replayed


def test_a_lever_without_a_predicted_effect_is_omitted(
    stored: Engine, accounted: Explanation
) -> None:
    """Adding replicas shortens the latency; one more batch slot does not."""
    levers = [
        Lever("add replicas", change="replicas=2"),
        Lever("allow more", "--max-num-seqs", "max_num_seqs=257"),
        Lever("limit a stranger", change="rate=tenant=nobody:0.5x"),
        Lever("limit an odd name", change="rate=tenant=a\nb:0.5x"),
        Lever("buy a faster GPU"),
    ]
    causes = [replace(accounted.causes[0], levers=levers)]
    found = with_replayed_shares(stored, replace(accounted, causes=causes)).causes[0].levers
    assert [each.action for each in found] == [
        "add replicas",
        "limit a stranger",
        "limit an odd name",
        "buy a faster GPU",
    ]
    effect = found[0].predicted
    assert effect is not None
    assert effect.then_s < effect.now_s
    assert effect.low_s is None or effect.low_s <= effect.then_s
    assert found[1].predicted is found[2].predicted is None


def test_without_causes_nothing_is_replayed(stored: Engine) -> None:
    usual = Question(Metric.E2E, question().baseline, question().baseline.before)
    explanation = explain_question(stored, usual)
    assert explanation.verdict is not ExplanationVerdict.INCIDENT
    assert with_replayed_shares(stored, explanation) is explanation


def test_only_the_slowest_part_of_a_large_window_is_replayed(
    stored: Engine, accounted: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 300)
    asked = question()
    window = module._slowest_part(stored, asked, Tails(asked.metric, 0.05, asked.where))
    baseline = module._last_part(stored, asked)
    for part, whole in ((window, asked.window), (baseline, asked.baseline)):
        assert whole.from_unix_ns <= part.from_unix_ns < part.to_unix_ns <= whole.to_unix_ns
        assert request_count(stored, part) == 300
    assert baseline.to_unix_ns == asked.baseline.to_unix_ns
    found = with_replayed_shares(stored, accounted)
    assert found.replay is None or found.replay.requests <= 300
