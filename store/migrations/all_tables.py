"""Import every module of the store that declares tables.

If a module is missing here, new databases do not have its tables.
"""

from store import clock_corrections, leases, predictions, sender_clocks, state_link
from store.alerting import incident_answers, incidents, notifications, slo_counts, slo_marks
from store.rollups import sample_tables, tables
from store.schema import METADATA, STATE_METADATA

__all__ = [
    "METADATA",
    "STATE_METADATA",
    "clock_corrections",
    "incident_answers",
    "incidents",
    "leases",
    "notifications",
    "predictions",
    "sample_tables",
    "sender_clocks",
    "slo_counts",
    "slo_marks",
    "state_link",
    "tables",
]
