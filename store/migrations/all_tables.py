"""The whole schema: every module of the store that declares tables, imported in one place.

A module missing here would be missing in new databases; `tests/store/migrations`
holds the whole against the revisions.
"""

from store.alerting import incidents, notifications, slo_counts, slo_marks
from store.rollups import sample_tables, tables
from store.schema import METADATA

__all__ = [
    "METADATA",
    "incidents",
    "notifications",
    "sample_tables",
    "slo_counts",
    "slo_marks",
    "tables",
]
