"""The whole schema: every module of the store that declares tables, imported in one place.

A module missing here would be missing in new databases; `tests/store/test_migrations.py`
holds the whole against the revisions.
"""

from store import (
    incidents,
    notifications,
    rollup_tables,
    slo_counts,
    slo_marks,
    stretch_tables,
)
from store.schema import METADATA

__all__ = [
    "METADATA",
    "incidents",
    "notifications",
    "rollup_tables",
    "slo_counts",
    "slo_marks",
    "stretch_tables",
]
