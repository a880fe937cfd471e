"""What data the store has: its newest time, and whether it is simulated."""

from typing import Final, NamedTuple

from sqlalchemy import Engine

from store import queries
from store.rollups.queries import rollups
from telemetry.window import Window

LONG_NS: Final = 3_600 * 10**9
"""For ranges longer than this, the answers come from rollups."""


class StoredData(NamedTuple):
    """What data the store has.

    Attributes:
        newest_unix_ns: the time of the newest request or sample, or None without data.
        simulated: whether some data of the windows is simulated.
    """

    newest_unix_ns: int | None
    simulated: bool


def stored_data(engine: Engine, *windows: Window) -> StoredData:
    """The newest data of the store, and whether data of the windows is simulated."""
    return StoredData(
        queries.newest_unix_ns(engine), any(is_simulated(engine, each) for each in windows)
    )


def is_simulated(engine: Engine, window: Window) -> bool:
    """Whether a window has simulated data. For a long window, the answer comes from rollups."""
    if window.to_unix_ns - window.from_unix_ns > LONG_NS:
        rolled = rollups(engine, window)
        if rolled is not None:
            rolled.sums([])
            return rolled.simulated
    return queries.simulated(engine, window)
