"""Count the good events and all events of each objective, when requests and probes arrive.

A row that arrives long after the request's end counts as `late`, because Prometheus cannot store a
count with an earlier time. A request in flight is counted when a report first shows that the
request is bad. Each report contains the request's age at the previous report, which shows whether
an earlier report was already counted. A request that was counted as bad stays bad, even if it ends
with a client error. Counters cannot decrease.

If prefill and decode are on different servers, the rows of a request do not arrive together, and
may arrive in any order. Rows then wait `JOIN_AFTER_NS`, and the next scrape counts them as one
request of a user.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from alerts.evaluation.in_flight_verdicts import columns_of_reports, newly_bad, was_bad_in_flight
from alerts.evaluation.probe_verdicts import (
    columns_of_probes,
    judge_probes,
    lasted_s,
    table_of_probes,
)
from alerts.evaluation.request_verdicts import EXCLUDED, RequestVerdict
from alerts.evaluation.table_verdicts import (
    NOT_SELECTED,
    VERDICTS,
    columns_of,
    judge_table,
    table_of,
)
from alerts.groups import Group, other, positions_in
from alerts.objectives import GoodEvents, GoodProbes, Goodput
from exporters.totals.request_batch import BoolArray, RequestBatch
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.request_rows import RequestRows
from telemetry.sketches import IntArray

LATE: Final = "late"
_BAD: Final = VERDICTS.index(RequestVerdict.BAD)
REASONS: Final = (*map(str, EXCLUDED), LATE)

LATE_NS: Final = 300 * 10**9
"""A row that arrives later than this after the request's end is `late`. It is the shortest window
of a paging alert."""


JOIN_AFTER_NS: Final = 15 * 10**9
"""A server sends a row up to 5 s after its request ended (OTEL_BSP_SCHEDULE_DELAY). A prefill row
that also needed a second attempt of 10 s (OTEL_EXPORTER_OTLP_TIMEOUT) arrives in this time."""
MAX_WAITING: Final = 100_000
"""Maximum number of waiting rows, if there are no scrapes. Older rows count without a join."""
_PLACE: Final = "place"

_log = logging.getLogger(__name__)


class UserRows(Protocol):
    """Replaces rows of engines by rows of users' requests."""

    columns: Sequence[str]
    """The columns that `joined` needs. It keeps other columns."""

    def are_apart(self) -> bool:
        """Whether a user's request has several rows."""

    def joined(self, rows: pa.Table) -> pa.Table:
        """One row for each user's request."""


class WaitingRows(NamedTuple):
    """Rows that are not counted yet, and when they arrived."""

    rows: RequestRows
    late: BoolArray
    at_unix_ns: int


@dataclass(slots=True)
class SloTotals:
    """The counts of one objective, or of one of its groups, since the start."""

    events: int = 0
    good: int = 0
    excluded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def add(self, codes: np.ndarray, late: int) -> None:
        """Count the requests of each verdict. `codes` are indices in `VERDICTS`."""
        self.excluded[LATE] += late
        numbers = np.bincount(codes, minlength=len(VERDICTS)).tolist()
        for verdict, number in zip(VERDICTS, numbers, strict=True):
            if verdict in EXCLUDED:
                self.excluded[str(verdict)] += number
            else:
                self.events += number
                self.good += number if verdict is RequestVerdict.GOOD else 0

    def copy(self) -> "SloTotals":
        """Return a copy."""
        return SloTotals(self.events, self.good, dict(self.excluded))


Key = tuple[str, Group]
"""An objective's name and a group. The group is () if the objective has no groups."""


class SloCounts:
    """Counts requests and probes for every objective."""

    def __init__(
        self,
        objectives: Mapping[str, GoodEvents],
        separate: Callable[[GoodEvents], tuple[Group, ...]],
        users: UserRows | None = None,
    ) -> None:
        self._objectives = dict(objectives)
        self._separate = separate
        self._users = users
        self._apart = False
        self._waiting: deque[WaitingRows] = deque()
        self._totals: dict[Key, SloTotals] = {}
        self._scraped = False

    def add(self, bulk: RequestBatch) -> None:
        """Count requests for the objectives that apply to them. Rows that must be joined first wait
        for `due`."""
        late = _is_late(bulk.now_unix_ns, bulk.ended_unix_ns)
        if not self._apart:
            self._count(bulk.rows, late)
            return
        self._waiting.append(WaitingRows(bulk.rows, late, bulk.now_unix_ns))
        while sum(len(each.rows) for each in self._waiting) > MAX_WAITING:
            oldest = self._waiting.popleft()
            self._count(oldest.rows, oldest.late)

    def due(self, now_unix_ns: int) -> list[WaitingRows]:
        """Remove and return the rows that waited long enough."""
        found = []
        while self._waiting and not (
            0 <= now_unix_ns - self._waiting[0].at_unix_ns < JOIN_AFTER_NS and self._apart
        ):
            found.append(self._waiting.popleft())
        return found

    def read_roles(self) -> None:
        """Read whether rows must be joined. This reads the store, so call it without a lock."""
        if self._users is not None:
            try:
                self._apart = self._users.are_apart()
            except Exception:  # rows wait, or are counted, as before
                _log.warning("the roles of the engines could not be read", exc_info=True)

    def joined(self, due: Sequence[WaitingRows]) -> list[tuple[WaitingRows, pa.Table]]:
        """Join the rows that `due` returned. This reads the store, so call it without a lock.

        Returns: the rows, and for each the table to count. The table's column `place` has the
        number of each row.
        """
        found = []
        for each in due:
            table = self._table(each.rows, () if self._users is None else self._users.columns)
            if self._users is not None:
                try:
                    table = self._users.joined(table)
                except Exception:  # the rows count with their engines' latencies
                    _log.warning("requests could not be joined for /metrics", exc_info=True)
            found.append((each, table))
        return found

    def add_joined(self, found: Sequence[tuple[WaitingRows, pa.Table]]) -> None:
        """Count joined rows."""
        for each, table in found:
            self._count(each.rows, each.late, table)

    def _goodputs(self) -> Iterator[tuple[str, Goodput]]:
        for name, goodput in self._objectives.items():
            if isinstance(goodput, Goodput):
                yield name, goodput

    def _table(self, rows: RequestRows, more: Sequence[str]) -> pa.Table:
        columns = dict.fromkeys(more)
        for _, goodput in self._goodputs():
            columns |= dict.fromkeys((*columns_of(goodput.where, goodput.good), *goodput.by))
        return table_of(rows, columns).append_column(_PLACE, pa.array(np.arange(len(rows))))

    def _count(self, rows: RequestRows, late: BoolArray, joined: pa.Table | None = None) -> None:
        place = slice(None) if joined is None else joined[_PLACE].to_numpy()
        for name, goodput in self._goodputs():
            columns = dict.fromkeys((*columns_of(goodput.where, goodput.good), *goodput.by))
            table = table_of(rows, columns) if joined is None else joined.select(list(columns))
            codes = judge_table(goodput.where, goodput.good, table)
            codes[was_bad_in_flight(goodput, rows)[place]] = NOT_SELECTED
            self._add(name, goodput, table, codes, late[place])

    def add_in_flight(self, reports: Sequence[InFlightRequest], now_unix_ns: int) -> None:
        """Count the requests whose reports show for the first time that they missed an
        objective."""
        late = _is_late(now_unix_ns, np.array([each.seen_unix_ns for each in reports], np.int64))
        for name, goodput in self._objectives.items():
            if not isinstance(goodput, Goodput):
                continue
            bad = newly_bad(goodput, reports)
            if bad.any():
                table = pa.table(columns_of_reports(reports, goodput.by))
                self._add(name, goodput, table, np.where(bad, _BAD, NOT_SELECTED), late)

    def add_probes(self, probes: Sequence[Probe], now_unix_ns: int) -> None:
        """Count probes for the objectives that apply to them."""
        for name, indicator in self._objectives.items():
            if not isinstance(indicator, GoodProbes) or not probes:
                continue
            columns = (*columns_of_probes(indicator.where, indicator.good), *indicator.by)
            table = table_of_probes(probes, ["at_unix_ns", *dict.fromkeys(columns)])
            codes = judge_probes(indicator.where, indicator.good, table)
            lasted_ns = (lasted_s(table).to_numpy() * 1e9).astype(np.int64)
            late = _is_late(now_unix_ns, table["at_unix_ns"].to_numpy() + lasted_ns)
            self._add(name, indicator, table, codes, late)

    def _add(
        self, name: str, goodput: GoodEvents, table: pa.Table, codes: IntArray, late: BoolArray
    ) -> None:
        places, selected = self._counted_groups(name, goodput), codes != NOT_SELECTED
        place = positions_in(table, goodput.by, places[1:]) if goodput.by else np.zeros_like(codes)
        for at in np.unique(place[selected]).tolist():
            own = selected & (place == at)
            totals = self._totals.setdefault((name, places[at]), SloTotals())
            totals.add(codes[own & ~late], int(np.count_nonzero(own & late)))

    def copy(self) -> dict[Key, SloTotals]:
        """Return the current counts."""
        keys = [
            (name, group)
            for name, each in self._objectives.items()
            for group in self._groups_of(each)
        ]
        self._totals = {key: self._totals.get(key, SloTotals()) for key in keys}
        self._scraped = True
        return {key: totals.copy() for key, totals in self._totals.items()}

    def _counted_groups(self, name: str, goodput: GoodEvents) -> tuple[Group, ...]:
        """The objective's groups, without new groups that no scrape contains yet. Until a scrape
        contains them, their requests count as `other`. So the counters of a new group begin at 0,
        and `rate()` in Prometheus misses no requests."""
        groups = self._groups_of(goodput)
        if not self._scraped:
            return groups
        return tuple(each for each in groups if (name, each) in self._totals)

    def _groups_of(self, goodput: GoodEvents) -> tuple[Group, ...]:
        """The objective's groups. The first group has the requests that are in no other group."""
        return (other(goodput.by), *self._separate(goodput)) if goodput.by else ((),)


def _is_late(now_unix_ns: int, at_unix_ns: IntArray) -> BoolArray:
    late: BoolArray = now_unix_ns - at_unix_ns > LATE_NS
    return late
