"""The leases that this collector holds. A lease is the right to do a task for all collectors of a
database."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from exporters.definitions.series_types import MetricSeries
from exporters.families import gauge
from exporters.format.text import Families, Family

HELD: Final = MetricSeries(
    "tailspan_lease_held",
    "1 if this collector does the task for all collectors on its database, otherwise 0. The sum"
    " over all collectors is 1, or 0 for some seconds after a collector fails. Absent if only"
    " one collector can use the database.",
    ("lease",),
)


class LeaseMetrics(Families):
    """Reports, for each lease, whether this collector holds it."""

    def __init__(self, held: Callable[[], Mapping[str, bool]]) -> None:
        self._held = held

    def families(self) -> Iterator[Family]:
        """Yield the family with the current values."""
        held = self._held()
        if held:
            yield gauge(HELD, {(name,): int(is_held) for name, is_held in held.items()})
