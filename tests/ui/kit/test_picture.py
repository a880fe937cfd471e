from datetime import UTC
from zoneinfo import ZoneInfo

from telemetry.window import Window
from ui.kit import picture

AT_NS = 1_763_634_000 * 10**9


def test_a_caption_names_filters_range_zone_and_origin() -> None:
    """A downloaded picture has no page around it, so the caption must contain the filters, the
    range and the time zone."""
    window = Window(AT_NS, AT_NS + 900 * 10**9)
    assert picture.caption({}, window, UTC, simulated=False) == (
        "2025-11-20 10:20:00 to 10:35:00 · times in UTC"
    )
    assert picture.caption(
        {"tenant": "acme\n"}, window, ZoneInfo("Europe/Berlin"), simulated=True
    ) == (
        "tenant acme� · 2025-11-20 11:20:00 to 11:35:00 · times in Europe/Berlin, UTC+01:00"
        " · simulated data"
    )
