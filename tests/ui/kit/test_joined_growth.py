from analysis.joined.explain import JoinedExplanation
from ui.kit.joined_growth import summary


def test_the_summary_states_that_older_rows_are_missing() -> None:
    found = JoinedExplanation(3, 2, None, ())
    assert "Only the newest" not in summary(found, "TTFT")
    cut = JoinedExplanation(3, 2, None, (), truncated=True)
    assert "Only the newest 100,000 rows" in summary(cut, "TTFT")
