from analysis.staleness import STALE_S, silence_s

S = 10**9
NOW = 1_790_000_000 * S


def test_only_a_few_missed_exports_of_the_present_are_silence() -> None:
    ages_s = (0, STALE_S, 2_880)
    found = [silence_s(NOW - int(age_s * S), NOW, NOW) for age_s in ages_s]
    assert found == [None, None, 2_880]
    assert silence_s(NOW - 7_200 * S, NOW - 3_600 * S, NOW) is None
    assert silence_s(None, NOW, NOW) is None
