"""List the values of a label."""

from sqlalchemy import Engine

from analysis.compare.question import VERSION
from analysis.compare.versions import versions_in
from analysis.stored_data import LONG_NS
from store import queries
from store.rollups.queries import rolled_label_values
from store.rollups.tables import LABELS as ROLLED_LABELS
from telemetry.window import Window


def label_values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label in a window. For a long window, they come from rollups."""
    if label == VERSION:
        return versions_in(engine, window)
    if label in ROLLED_LABELS and window.to_unix_ns - window.from_unix_ns > LONG_NS:
        rolled = rolled_label_values(engine, window, label)
        if rolled is not None:
            return rolled
    return queries.label_values(engine, window, label)
