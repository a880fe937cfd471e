import sys
from collections.abc import Callable
from functools import cache

import pytest

from alerts.openslo.reader import OBJECTIVES, load
from analysis import what_if_search
from analysis.recorded_traffic import Recorded
from analysis.what_if import WhatIfAnswer, WhatIfQuestion, predict
from analysis.what_if_search import MAX_POINTS, MIN_RATE, find, sweep, sweep_of
from replay.edits import EditError, Edits, RateEdit
from replay.engine_config import EngineConfig
from simulator.workload import Workload
from tests.analysis.recorded_fleet import recorded_window, simulated_window


@cache
def recorded() -> Recorded:
    """A replica whose batch almost reaches `max_num_seqs`."""
    engine, workload = EngineConfig(max_num_seqs=24), Workload(rate_per_s=6.0)
    return recorded_window(
        *simulated_window(60, seed=3, replicas=1, engine=engine, workload=workload)
    )


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def predicted(
        traffic: Recorded,
        asked: WhatIfQuestion,
        draws: int = 2,
        progress: Callable[[], None] = lambda: None,
    ) -> WhatIfAnswer:
        return predict(traffic, asked, draws, progress)

    monkeypatch.setattr(what_if_search, "predict", predicted)


def question(edits: Edits = Edits()) -> WhatIfQuestion:  # noqa: B008 -- immutable
    return WhatIfQuestion(recorded().window, edits, objectives=load([OBJECTIVES]).objectives)


def test_each_value_of_a_sweep_gets_its_prediction() -> None:
    points = sweep(recorded(), question(), sweep_of("max_num_seqs=3..24"), draws=2)
    assert [each.value for each in points] == ["3", "6", "12", "24"]
    waits = [each.answer.predicted["queue_s"]["p99"].value for each in points]
    assert all(value is not None for value in waits)
    assert waits == sorted(waits, reverse=True)  # type: ignore[type-var]
    assert points[0].answer.saturated
    assert not points[-1].answer.saturated


def test_the_present_value_predicts_what_was_measured() -> None:
    (now, _) = sweep(recorded(), question(), sweep_of("max_num_seqs=24,96"), draws=0)
    found = now.answer.predicted["e2e_s"]["p99"]
    assert found.value == pytest.approx(now.answer.now["e2e_s"]["p99"])
    assert (found.low, found.high) == (None, None)


def test_a_sweep_keeps_the_other_edits() -> None:
    edits = Edits(rates=[RateEdit(factor=2.0)])
    points = sweep(recorded(), question(edits), sweep_of("replicas=1..3"), draws=0)
    assert [list(each.answer.edits) for each in points] == [
        [f"replicas={number}", "rate=2x"] for number in (1, 2, 3)
    ]


def test_ranges_of_factors_have_a_constant_ratio() -> None:
    assert sweep_of("rate=1x..4x").values[::4] == ["1x", "2x", "4x"]
    assert sweep_of("max-num-seqs=16..512").values == ["16", "32", "64", "128", "256", "512"]
    assert sweep_of("max_num_seqs=16..100").values == ["16", "32", "64", "100"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "max_num_seqs", "max_num_seqs=", "max_num_seqs=4", "max_num_seqs=8..4"),
        *(
            "num_gpu_blocks=1..1000000",
            "max_num_seqs=0..4",
            "router=a,b",
            "rate=1x,fast",
            "replicas=1,x",
            "rate=1.1.1..2",
            *("replicas=0.4..100", "replicas=0.4..5", "replicas=1.5..3", "replicas=1..2.5"),
            *("replicas=-1..4", "replicas=nan..4", "replicas=1..nan", "replicas=1..inf"),
            *("rate=nan,1x", "rate=1..1.00001", f"rate=1..{'9' * 400}", "rate=0.0000001..1"),
            *(f"rate=1..{sys.float_info.max:.0f}", f"replicas=1..{sys.float_info.max:.0f}"),
            f"max_num_seqs=1..{'9' * 400}",
        ),
        "max_num_seqs=" + ",".join(str(value) for value in range(1, MAX_POINTS + 2)),
    ],
)
def test_a_malformed_sweep_is_an_error(text: str) -> None:
    with pytest.raises(EditError):
        sweep(recorded(), question(), sweep_of(text), draws=0)


def test_the_fewest_replicas_meet_the_slo_and_one_fewer_does_not() -> None:
    found = find(recorded(), question(Edits(rates=[RateEdit(factor=3.0)])), "replicas", "chat")
    assert found.value is not None
    assert found.value > 1
    by_value = {each.value: each for each in found.tried}
    assert by_value[found.value].met
    assert not by_value[found.value - 1].met
    assert f"replicas={found.value:g}" in found.answer.edits
    assert found.answer.predicted["ttft_s"]["p99"].low is not None


def test_the_highest_rate_meets_the_slo_and_a_higher_one_does_not() -> None:
    found = find(recorded(), question(), "rate", "chat")
    assert found.value is not None
    assert found.value > 1
    higher = min(each.value for each in found.tried if not each.met)
    assert found.value < higher <= found.value * 1.05


def test_an_slo_that_no_rate_meets_is_reported() -> None:
    slow = Edits(arguments={"max_num_seqs": "1"}, output=10.0)
    found = find(recorded(), question(slow), "rate", "chat")
    assert found.value is None
    assert min(each.value for each in found.tried) == MIN_RATE


def test_an_unknown_slo_is_named_with_the_known_ones() -> None:
    with pytest.raises(EditError, match=r"'fast'; allowed: .*chat"):
        find(recorded(), question(), "rate", "fast")
