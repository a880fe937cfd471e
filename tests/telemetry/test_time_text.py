import pytest

from telemetry.time_text import length

S = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.5, "0.5s"), (90, "1.5m"), (3600, "1h"), (86_400, "1d"), (3700, "1h")]
)
def test_a_length_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert length(int(seconds * S)) == shown
