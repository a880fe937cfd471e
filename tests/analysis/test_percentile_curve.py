import numpy as np

from analysis.percentile_curve import CURVE, curve_of, shares_below, shown
from analysis.what_if import PLACES, POINTS
from telemetry.quantiles import quantile


def test_a_curve_has_the_nearest_ranks() -> None:
    values = np.random.default_rng(2).permutation(np.append(np.linspace(0, 9, 737), np.nan))
    known = values[np.isfinite(values)]
    assert curve_of(values).tolist() == [quantile(known, q) for q in CURVE]
    assert np.isnan(curve_of(np.array([np.nan]))).all()
    assert {name: CURVE[place] for name, place in PLACES.items()} == POINTS


def test_shares_below_a_curve_count_equal_values() -> None:
    values = np.array([3.0, np.nan, 1.0, 1.0, 2.0])
    assert shares_below(values, np.array([0.5, 1.0, 2.5, 3.0])).tolist() == [0, 0.5, 0.75, 1]
    for unknown in ((values, np.array([np.nan])), (np.array([np.nan]), np.array([1.0]))):
        assert np.isnan(shares_below(*unknown)).all()


def test_few_values_determine_only_the_middle() -> None:
    def ends(number: int) -> tuple[float, float]:
        places = shown(number)
        return CURVE[places[0]], CURVE[places[-1]]

    assert shown(0) == []
    assert ends(100) == (0.1, 0.95)
    assert ends(600) == (0.01, 0.99)
    assert ends(10_000) == (0.01, 0.999)
