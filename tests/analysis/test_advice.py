from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from analysis import advice, what_if
from analysis.advice import AdviceAnswer, advise
from analysis.recorded_traffic import Recorded
from analysis.what_if import WhatIfQuestion
from analysis.window_replay import replayed
from replay.edits import Edits
from replay.engine_config import EngineConfig
from simulator.workload import Workload
from tests.analysis.recorded_fleet import recorded_window, simulated_window


@cache
def recorded(seats: int, replicas: int = 1) -> Recorded:
    return recorded_window(
        *simulated_window(
            120,
            seed=4,
            replicas=replicas,
            engine=EngineConfig(max_num_seqs=seats),
            workload=Workload(rate_per_s=6.0 * replicas),
        )
    )


def advised(metric: str, seats: int = 20, replicas: int = 1, draws: int = 4) -> AdviceAnswer:
    window = recorded(seats, replicas).window
    question = WhatIfQuestion(window, Edits(), usd_per_hour=4.0 * replicas)
    return advise(recorded(seats, replicas), question, metric, draws)


def test_levers_that_help_come_first_and_have_more_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Counter[str] = Counter()
    whole = replayed

    def counted(*each: Any) -> Any:
        if each[3].startswith("draw"):
            drawn[",".join(each[2].listed())] += 1
        return whole(*each)

    monkeypatch.setattr(what_if, "replayed", counted)
    monkeypatch.setattr(advice, "FEWER_DRAWS", 2)
    steps: list[int] = []
    question = WhatIfQuestion(recorded(20).window, Edits(), usd_per_hour=4.0)
    found = advise(recorded(20), question, "queue_s", 4, lambda: steps.append(1))
    assert len(steps) == 2 * 4, "the progress bar reaches its end"

    first = found.advice[0]
    assert first.lever.edits.listed() == ["max_num_seqs=40"]
    assert first.helps
    assert first.gain.low is not None
    assert first.gain.high is not None
    assert first.gain.low <= (first.gain.value or 0) <= first.gain.high < 0
    assert drawn["max_num_seqs=40"] == 4
    helps = [each.helps for each in found.advice]
    assert helps == sorted(helps, reverse=True)
    by_edits = {each.lever.edits.listed()[0]: each for each in found.advice}
    assert not by_edits["max_num_seqs=10"].helps
    assert by_edits["max_num_seqs=10"].gain.low is not None
    assert drawn["max_num_seqs=10"] == 2

    by_name = {each.lever.name: each for each in found.advice}
    assert by_name["one more replica"].answer.predicted_usd_per_hour == 8.0
    assert "one replica fewer" not in by_name
    unknown = " ".join(found.unknown)
    for lever in ("smaller model", "placement", "speculative decoding", "priority"):
        assert lever in unknown


def test_without_a_queue_quantisation_helps_and_more_batch_slots_do_not() -> None:
    by_name = {each.lever.name: each for each in advised("tpot_s", seats=256).advice}
    assert not by_name["larger batch"].helps
    assert not by_name["smaller batch"].helps
    found = by_name["quantisation"]
    assert found.helps
    assert any("extrapolated" in each for each in found.answer.extrapolated)
    assert "evaluation" in found.lever.precondition


def test_a_fleet_gets_advice_on_its_router() -> None:
    names = {each.lever.name for each in advised("e2e_s", replicas=2, draws=0).advice}
    assert {"routing by load", "routing by prefix", "one replica fewer"} <= names


def test_a_value_that_an_engine_cannot_have_is_not_judged() -> None:
    """The second engine has more slots in its batch than the first engine's smallest budget."""
    found = recorded(20, replicas=2)
    first, second = found.engines
    config = replace(second.model.engine, max_num_seqs=4_096)
    other = replace(second, model=replace(second.model, engine=config))
    mixed = replace(found, engines=[first, other])
    answer = advise(mixed, WhatIfQuestion(mixed.window, Edits()), "e2e_s", draws=0)
    names = {each.lever.name for each in answer.advice}
    assert {"smaller chunks", "one more replica"} <= names
    assert "small chunks" not in names
    assert (
        "small chunks: replica sim-1 cannot have this value: max_num_batched_tokens: 2048; allowed:"
        " at least max_num_seqs (4096)"
    ) in answer.unknown
