from itertools import pairwise

from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from exporters.definitions.series import ALL, HISTOGRAMS, histograms


def test_names_are_prefixed_and_spelled_once() -> None:
    names = [each.name for each in ALL]
    assert len(set(names)) == len(names)
    assert all(name.startswith("tailspan_") for name in names)


def test_help_describes_the_measurement() -> None:
    for each in ALL:
        assert each.help.endswith(".")
        assert "\n" not in each.help


def test_bounds_ascend_and_include_usual_thresholds() -> None:
    """Each bound is an exact double, so `le` is not rounded."""
    for histogram in HISTOGRAMS:
        bounds = histogram.bounds_s
        assert list(bounds) == sorted(set(bounds))
        assert {0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0} <= set(bounds)
        assert all(high / low < 1.67 for low, high in pairwise(bounds))


def test_an_objectives_threshold_is_a_bound() -> None:
    goodput = Goodput(None, parse("ttft_s <= 0.42 and (tpot_s < 0.033 or outcome == 'stop')", GOOD))
    before = {each.name: each.bounds_s for each in HISTOGRAMS}
    after = {each.name: each.bounds_s for each in histograms([goodput])}
    assert set(after["tailspan_ttft_seconds"]) - set(before["tailspan_ttft_seconds"]) == {0.42}
    assert set(after["tailspan_tpot_seconds"]) - set(before["tailspan_tpot_seconds"]) == {0.033}
    assert list(after["tailspan_ttft_seconds"]) == sorted(after["tailspan_ttft_seconds"])
    assert after["tailspan_e2e_seconds"] == before["tailspan_e2e_seconds"]


def test_a_threshold_that_no_bound_can_have_is_left_out() -> None:
    good = parse("ttft_s <= 0.995 and not queue_s > 0 and e2e_s <= 1e300", GOOD)
    after = {each.name: set(each.bounds_s) for each in histograms([Goodput(None, good)])}
    assert 0.995 in after["tailspan_ttft_seconds"]
    assert 0.0 not in after["tailspan_queue_seconds"]
    assert 1e300 not in after["tailspan_e2e_seconds"]
