import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.over_time import percentiles
from telemetry import quantiles


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 1500), st.integers(1, 5))
def test_percentiles_per_bin_equal_those_of_its_values(seed: int, number: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    values, index = rng.lognormal(size=number), rng.integers(0, bins, number)
    found = percentiles.per_bin(values, index, bins)
    for bin_, (name, q) in ((b, item) for b in range(bins) for item in found_quantiles()):
        inside = values[index == bin_]
        interval = quantiles.rank_interval(inside, q)
        series = found.series[name]
        shown = [series.value_s[bin_], series.low_s[bin_], series.high_s[bin_]]
        if interval is None:
            assert np.isnan(shown).all()
        else:
            assert shown == [quantiles.quantile(inside, q), *interval]


def found_quantiles() -> list[tuple[str, float]]:
    return list(percentiles.QUANTILES.items())


def test_too_few_requests_have_no_p99() -> None:
    values = np.linspace(0.1, 1, 380 + 381)
    index = np.repeat([0, 1], [380, 381])
    p99 = percentiles.per_bin(values, index, 2).series["p99"].value_s
    assert np.isnan(p99).tolist() == [True, False]
    few, enough = (percentiles.estimate(values[:n], "p99") for n in (380, 381))
    assert (few.requests, few.value_s) == (380, None)
    assert (enough.requests, enough.value_s) == (381, quantiles.quantile(values[:381], 0.99))


def test_a_request_without_the_latency_is_not_counted() -> None:
    values = np.where(np.arange(40) % 2 == 0, 0.5, np.nan)
    found = percentiles.per_bin(values, np.zeros(40, dtype=np.int64), 1)
    assert found.requests.tolist() == [20]
    assert found.series["p50"].value_s.tolist() == [0.5]


def test_an_empty_bin_is_a_gap() -> None:
    found = percentiles.per_bin(np.empty(0), np.empty(0, dtype=np.int64), 3)
    assert found.requests.tolist() == [0, 0, 0]
    assert np.isnan(found.series["p50"].value_s).all()
