from hypothesis import given
from hypothesis import strategies as st

from exporters.totals.recent_latencies import Counted
from exporters.totals.recent_quantiles import quantiles_s
from telemetry.quantiles import least_number
from telemetry.sketches import quantile_s

LABELS = ("0.5", "0.95", "0.99")
windows = st.dictionaries(st.integers(-600, 400), st.integers(1, 300), min_size=1, max_size=8)


@given(st.lists(windows, max_size=6))
def test_each_window_has_its_own_quantiles(counts: list[dict[int, int]]) -> None:
    reported = [*quantiles_s([Counted(sorted(each), each) for each in counts], LABELS)]
    assert reported == [
        (window, label, quantile_s(each, float(label)))
        for window, each in enumerate(counts)
        for label in LABELS
        if sum(each.values()) >= least_number(float(label))
    ]
