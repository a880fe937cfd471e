import pytest

from alerts.blindness import EXPECTED, MIN_LEFT_OUT, NONE_SELECTED, REASONS, blind_because
from alerts.burnrate import EventCounts


@pytest.mark.parametrize(
    ("events", "excluded", "requests", "reason"),
    [
        (0, {}, EXPECTED, NONE_SELECTED),
        (0, {}, EXPECTED - 1, None),
        (1, {}, 10_000, None),
        (0, {"aborted": 1}, 10_000, None),
        (4, {"unknown": MIN_LEFT_OUT}, 9, "unknown"),
        (3, {"unknown": MIN_LEFT_OUT - 1}, 9, None),
        (50, {"unknown": 50}, 100, None),
        (50, {"late": 51}, 101, "late"),
        (5, {"client_error": 90, "aborted": 90}, 200, None),
    ],
)
def test_most_requests_uncounted_is_blind(
    events: int, excluded: dict[str, int], requests: int, reason: str | None
) -> None:
    """Rejected and aborted requests do not make an objective blind."""
    assert blind_because(EventCounts(0, events), excluded, requests) == reason
    assert reason is None or all(REASONS[reason])
