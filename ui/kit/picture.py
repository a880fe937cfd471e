"""The line under the title of a downloaded picture. Pure."""

from collections.abc import Mapping
from datetime import tzinfo

from telemetry.window import Window
from ui.kit import wording


def caption(equals: Mapping[str, str], window: Window, zone: tzinfo, *, simulated: bool) -> str:
    """The filters, the range, the time zone, and whether data is simulated.

    Filter values are external text.
    """
    start, end = (
        wording.clock(each, zone, date=True) for each in (window.from_unix_ns, window.to_unix_ns)
    )
    until = end[-8:] if start[:10] == end[:10] else end
    parts = [
        *(f"{label} {wording.plain(value)}" for label, value in equals.items()),
        f"{start} to {until}",
        wording.zone_name(zone, window.from_unix_ns, window.to_unix_ns),
        *(["simulated data"] if simulated else []),
    ]
    return " · ".join(parts)
