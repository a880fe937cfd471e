"""What pages there are, each with one question. Pure.

To add a page: a row here, and a folder `ui/views/KEY` whose module `page` has a `body`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the explorer."""

    key: str
    """What the address says: page=KEY."""
    name: str
    """One short word for the way there."""
    question: str
    """Its title; what stands under it is the answer."""
    refresh_s: Mapping[str, int]
    """How often it looks again while it follows the clock, by the length of the range."""
    by_latency: bool = False
    """Whether the reader chooses which latency it speaks of."""
    filters: bool = True
    """Whether the reader chooses of which requests it speaks."""
    compares: bool = False
    """Whether the reader chooses what to compare with and what decides: SLOs, or the growth."""
    of_a_range: bool = True
    """Whether it speaks of a stretch of time and of what passes the filters."""


WATCHED_S: Final = {"5m": 2, "15m": 3, "1h": 5, "6h": 15, "24h": 60}
"""Longer ranges move less and cost more."""

LOOKED_AT_S: Final = {"5m": 5, "15m": 10, "1h": 15, "6h": 60, "24h": 120}
"""Of a page that stands open all day, on several screens."""

READ_S: Final = {"5m": 10, "15m": 15, "1h": 30, "6h": 120, "24h": 600}
"""Of a page that is read, not watched."""

PAGES: Final = (
    Page("overview", "Now", "Is anyone hurt?", LOOKED_AT_S),
    Page(
        "requests",
        "Requests",
        "What did requests wait for?",
        WATCHED_S,
        by_latency=True,
    ),
    Page(
        "root-cause",
        "Causes",
        "Why is it slow?",
        READ_S,
        by_latency=True,
        compares=True,
    ),
    Page(
        "fleet",
        "Fleet",
        "What is the fleet doing?",
        WATCHED_S,
    ),
    Page(
        "request",
        "One request",
        "What happened to this request?",
        READ_S,  # nothing of it moves by itself
        of_a_range=False,
    ),
    Page("cost", "Cost", "Who pays for what?", READ_S),
    Page("slos", "Promises", "What is being promised?", READ_S, filters=False),
)
"""In the order in which they are offered; the first opens where an address names none."""

BY_KEY: Final = {page.key: page for page in PAGES}
FIRST: Final = PAGES[0].key
