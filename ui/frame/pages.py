"""The pages of the explorer, in the order of navigation. Pure.

To add a page: add a row here, and a folder `ui/views/KEY` (with _ for -) whose module `page` has
`read` and `show`, as `ui.frame.context.PageModule` describes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the explorer."""

    key: str
    """Path in the address; the first page has none."""
    name: str
    """Title, and text of its navigation link."""
    refresh_s: Mapping[str, int]
    """Seconds between refreshes of a live page, by the length of the range."""
    by_latency: bool = False
    """Whether the reader chooses a latency."""
    filters: bool = True
    """Whether the reader filters requests."""
    compares: bool = False
    """Whether the reader chooses the baseline, and whether SLOs or the growth's size decide."""
    of_a_range: bool = True
    """Whether it shows a time range and the requests in it that pass the filters."""
    needs_data: bool = True
    """Whether it stays empty until the first server reports."""


_WATCHED_S: Final = {"5m": 2, "15m": 3, "1h": 5, "6h": 15, "24h": 60}
"""For a page that is watched. Longer ranges change less and cost more to read."""
_GLANCED_S: Final = {"5m": 5, "15m": 10, "1h": 15, "6h": 60, "24h": 120}
"""For a page that stays open all day on several screens."""
_READ_S: Final = {"5m": 10, "15m": 15, "1h": 30, "6h": 120, "24h": 600}
"""For a page that is read."""

GROUPS: Final = (
    (
        Page("overview", "Overview", _GLANCED_S),
        Page("slos", "SLOs", _READ_S, filters=False, needs_data=False),
    ),
    (
        Page("root-cause", "Root cause", _READ_S, by_latency=True, compares=True),
        Page("requests", "Requests", _WATCHED_S, by_latency=True),
        Page("request", "Request", _READ_S, of_a_range=False, needs_data=False),
    ),
    (
        Page("fleet", "Fleet", _WATCHED_S),
        Page("cost", "Cost", _READ_S),
    ),
)
"""The pages; the navigation separates the groups."""

PAGES: Final = tuple(page for group in GROUPS for page in group)
BY_KEY: Final = {page.key: page for page in PAGES}
FIRST: Final = PAGES[0].key
"""The page of an address that names none."""
