import pytest

from analysis.staleness import STALE_S, silence_s

S = 10**9
NOW = 1_790_000_000 * S


@pytest.mark.parametrize(("age_s", "silent"), [(0, None), (STALE_S, None), (2_880, 2_880)])
def test_a_few_missed_exports_are_silence(age_s: float, silent: float | None) -> None:
    assert silence_s(NOW - int(age_s * S), NOW, NOW) == silent


def test_a_past_range_is_not_silent() -> None:
    assert silence_s(NOW - 7_200 * S, NOW - 3_600 * S, NOW) is None


def test_an_empty_store_is_not_silent() -> None:
    assert silence_s(None, NOW, NOW) is None
