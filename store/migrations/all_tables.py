"""Import every module of the store that declares tables.

If a module is missing here, new databases do not have its tables. `tests/store/migrations` compares
the declared tables with the revisions.
"""

from store import leases, predictions
from store.alerting import incidents, notifications, slo_counts, slo_marks
from store.rollups import sample_tables, tables
from store.schema import METADATA

__all__ = [
    "METADATA",
    "incidents",
    "leases",
    "notifications",
    "predictions",
    "sample_tables",
    "slo_counts",
    "slo_marks",
    "tables",
]
