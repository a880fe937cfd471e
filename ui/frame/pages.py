"""The pages of the explorer, in the order of navigation. Pure.

Each page has a row in this module, and a folder `ui/views/KEY` (with `_` for `-`). The folder
contains a `ui.frame.context.PageModule`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ExplorerPage:
    """One page of the explorer."""

    key: str
    """The path of the page in the address."""
    name: str
    refresh_s: Mapping[str, int]
    """Seconds between refreshes of a live page. They depend on the length of its range."""
    by_latency: bool = False
    by_content: bool = False
    """Whether the reader can select the time to first content."""
    filters: bool = True
    compares: bool = False
    splits: bool = False
    """Whether the reader can compare two values of a label."""
    decides: bool = False
    """Whether the reader can choose how incidents are detected: by SLOs, or by the latency's
    growth."""
    of_a_range: bool = True
    needs_data: bool = True


_WATCHED_S: Final = {"5m": 2, "15m": 3, "1h": 5, "6h": 15, "24h": 60}
"""Refresh intervals of pages that readers watch. A longer range changes less, and takes longer to
read."""
_GLANCED_S: Final = {"5m": 5, "15m": 10, "1h": 15, "6h": 60, "24h": 120}
"""Refresh intervals of a page that a screen shows all day."""
_ASKED_S: Final = {"5m": 60, "15m": 120, "1h": 300, "6h": 900, "24h": 3600}
"""Refresh intervals of pages that calculate for several seconds."""
_READ_S: Final = {"5m": 10, "15m": 15, "1h": 30, "6h": 120, "24h": 600}
"""Refresh intervals of pages that readers open, read and leave."""

GROUPS: Final = (
    (
        ExplorerPage("overview", "Overview", _GLANCED_S),
        ExplorerPage("slos", "SLOs", _READ_S, filters=False, needs_data=False),
    ),
    (
        ExplorerPage(
            *("root-cause", "Root cause", _READ_S),
            by_latency=True,
            by_content=True,
            compares=True,
            decides=True,
        ),
        ExplorerPage("requests", "Requests", _WATCHED_S, by_latency=True),
        ExplorerPage("request", "Request", _READ_S, of_a_range=False, needs_data=False),
    ),
    (
        ExplorerPage("compare", "Compare", _ASKED_S, by_latency=True, compares=True, splits=True),
        ExplorerPage("what-if", "What if", _ASKED_S, by_latency=True),
    ),
    (
        ExplorerPage("fleet", "Fleet", _WATCHED_S),
        ExplorerPage("outside", "Outside", _READ_S, filters=False, needs_data=False),
        ExplorerPage("cost", "Cost", _READ_S),
    ),
)
PAGES: Final = tuple(page for group in GROUPS for page in group)
BY_KEY: Final = {page.key: page for page in PAGES}
FIRST: Final = PAGES[0].key
