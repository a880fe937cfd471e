import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.explanation import PartGrowth
from diagnosis.latency.parts import PARTS
from ui.kit import colours
from ui.kit.part_names import part_name
from ui.views.root_cause import increase

Seconds = st.floats(0, 1e3)


@given(st.lists(st.tuples(Seconds, Seconds), min_size=len(PARTS), max_size=len(PARTS)))
def test_the_steps_sum_to_the_growth(values: list[tuple[float, float]]) -> None:
    parts = [PartGrowth(part, *pair) for part, pair in zip(PARTS, values, strict=True)]
    steps = increase.steps(parts)
    reached = 0.0
    for step in steps:
        assert step.from_s == pytest.approx(reached, abs=1e-6)
        reached += step.growth_s
    assert reached == pytest.approx(sum(part.excess_s for part in parts), abs=1e-6)
    assert len(increase.figure(steps).data) == len(steps) + 1


def test_every_part_has_a_unique_name_and_its_phases_colour() -> None:
    named = [part_name(part) for part in PARTS]
    assert len({name for name, _, _ in named}) == len(PARTS)
    assert part_name("queue_kv")[1] == colours.QUEUE
    assert part_name("decode_own")[1] == colours.DECODE
    assert part_name("prefill_others_prefill")[1] == colours.OTHERS


def test_small_parts_are_drawn_as_one_step() -> None:
    parts = [
        PartGrowth("frontend", 0.004, 0.005),
        PartGrowth("queue_kv", 0.0, 2.0),
        PartGrowth("prefill_own", 0.1, 0.09),
        PartGrowth("decode_own", 0.0, 0.0),
    ]
    steps = increase.steps(parts)
    assert [step.name for step in steps] == ["queued: KV cache full", increase.REST]
    assert steps[1].growth_s == pytest.approx(-0.009)
    assert increase.figure(steps).data[1].text == ("−9.00 ms",)


def test_an_empty_increase_is_drawn_empty() -> None:
    assert increase.steps([PartGrowth(part, 0.0, 0.0) for part in PARTS]) == []
    assert increase.figure([]).data[0].text == ("+0 ms",)
