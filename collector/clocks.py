"""Whose clock is off: who tells of what has not been yet.

Nothing is sent before it has happened. An instant later than its arrival was read on a clock
that is ahead of ours by at least as much: the lead. A clock that is behind shows no such
contradiction, for what it tells might as well have waited on the way; that is told, not mended.

A sender's lead is the middle one of its last messages', so that neither one broken span nor one
message that was late counts for all. Where it is above `TOLERANCE_NS`, all instants of the sender
are set back by it, and the rows say by how much: told = kept + `clock_ahead_s`. The amount
stays as it is while it is about right, because what totals count since is an instant too, and
another one would be another count.

What is told again, because an answer was missed, is set back by as much as the first time, so
that it is known for the same: instants are part of what rows are told apart by.

Pure but for what it remembers; called on one event loop.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Any, Final

from collector.normalise.batch import Batch
from telemetry.request_rows import PLACE, RequestRows, Row

TOLERANCE_NS: Final = 10**9
"""NTP keeps clocks within milliseconds, and no question here is about less than a second."""
REMEMBERED: Final = 16
"""Messages of a sender. A server sends every second or so."""
MOST_SOURCES: Final = 1_000
"""Senders told apart; of more, the longest silent begins anew."""
SILENT_NS: Final = 600 * 10**9
"""Of who has said nothing for so long nothing is reported."""
MOST_REPEATS: Final = 100_000
"""Rows that were set back and would be by as much again; some 20 MB, if a clock is that fast."""
UNNAMED: Final = "unnamed"
"""Who gives no replica's name, as all clients: several clocks, so each message is on its own."""

_REPLICA, _RECEIVED = PLACE["replica"], PLACE["received_unix_ns"]
_TRACE, _SPAN = PLACE["trace_id"], PLACE["span_id"]
_E2E, _AHEAD = PLACE["e2e_s"], PLACE["clock_ahead_s"]


@dataclass(slots=True)
class Source:
    """What is known of one sender's clock."""

    name: str
    leads_ns: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    ahead_ns: int = 0
    """By how much its instants are set back."""
    rows: int = 0
    """That were set back, all told."""
    heard_unix_ns: int = 0

    @property
    def lead_s(self) -> float:
        """How far ahead of their arrival its newest instants are; negative as a rule."""
        return median_high(self.leads_ns) / 1e9 if self.leads_ns else 0.0

    @property
    def ahead_s(self) -> float:
        """The same as `ahead_ns`."""
        return self.ahead_ns / 1e9

    def learn(self, lead_ns: int, at_unix_ns: int) -> None:
        """Take note of a message's lead."""
        self.heard_unix_ns = at_unix_ns
        if self.name == UNNAMED:
            self.leads_ns.clear()
        self.leads_ns.append(lead_ns)
        middle_ns = median_high(self.leads_ns)
        # Half of it to let go: at the very limit it would come and go.
        if middle_ns <= (TOLERANCE_NS // 2 if self.ahead_ns else TOLERANCE_NS):
            self.ahead_ns = 0
        elif abs(middle_ns - self.ahead_ns) > TOLERANCE_NS:
            self.ahead_ns = middle_ns


class Clocks:
    """Sets right what senders with a fast clock tell, and remembers whose are."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._now_unix_ns = 0
        self._set_back: OrderedDict[Hashable, int] = OrderedDict()

    def __call__(self, batch: Batch, arrived_unix_ns: int) -> None:
        """Look at a message's rows, and set back those that are ahead."""
        self._now_unix_ns = arrived_unix_ns
        newest: dict[str | None, int] = {}
        for row in batch.requests.rows:
            end_unix_ns, replica = _end_unix_ns(row), row[_REPLICA]
            if end_unix_ns > newest.get(replica, 0):
                newest[replica] = end_unix_ns
        for rows in (batch.samples, batch.starts, batch.gpus):
            for each in rows:
                if each.at_unix_ns > newest.get(each.replica, 0):
                    newest[each.replica] = each.at_unix_ns
        off: dict[str | None, Source] = {}
        for replica, newest_unix_ns in newest.items():
            source = self._source(replica or UNNAMED)
            lead_ns = newest_unix_ns - arrived_unix_ns
            source.learn(lead_ns, arrived_unix_ns)
            if source.ahead_ns or lead_ns > TOLERANCE_NS:
                off[replica] = source
        if off or self._set_back:
            self._set_right(batch, off, arrived_unix_ns)

    def report(self) -> list[Source]:
        """The senders that were heard lately, by name."""
        since = self._now_unix_ns - SILENT_NS
        found = [each for each in list(self._sources.values()) if each.heard_unix_ns >= since]
        return sorted(found, key=lambda source: source.name)

    def _source(self, name: str) -> Source:
        source = self._sources.pop(name, None) or Source(name)
        self._sources[name] = source
        if len(self._sources) > MOST_SOURCES:
            self._sources.popitem(last=False)
        return source

    def _set_right(self, batch: Batch, off: dict[str | None, Source], arrived_unix_ns: int) -> None:
        def ahead_of(told: Hashable, replica: str | None, newest_unix_ns: int) -> int:
            known = self._set_back.get(told)
            source = off.get(replica)
            if known is not None or source is None:
                return known or 0
            lead_ns, ahead_ns = newest_unix_ns - arrived_unix_ns, source.ahead_ns
            if lead_ns - ahead_ns > TOLERANCE_NS:
                ahead_ns = lead_ns  # further ahead than its like: this one by itself
            if ahead_ns:
                source.rows += 1
                self._set_back[told] = ahead_ns
                if len(self._set_back) > MOST_REPEATS:
                    self._set_back.popitem(last=False)
            return ahead_ns

        def right_request(row: Row) -> Row:
            told = (row[_TRACE], row[_SPAN], row[_RECEIVED])
            ahead_ns = ahead_of(told, row[_REPLICA], _end_unix_ns(row))
            if not ahead_ns:
                return row
            values = list(row)
            values[_RECEIVED] -= ahead_ns
            values[_AHEAD] = ahead_ns / 1e9
            return tuple(values)

        def right(row: Any, *instants: str) -> Any:
            told = (row.replica, row.at_unix_ns)
            ahead_ns = ahead_of(told, row.replica, row.at_unix_ns)
            if not ahead_ns:
                return row
            earlier = {name: getattr(row, name) - ahead_ns for name in instants}
            return replace(row, **earlier, clock_ahead_s=ahead_ns / 1e9)

        batch.requests = RequestRows([right_request(row) for row in batch.requests.rows])
        batch.samples = [right(row, "at_unix_ns", "started_unix_ns") for row in batch.samples]
        batch.starts = [right(row, "at_unix_ns") for row in batch.starts]
        batch.gpus = [right(row, "at_unix_ns") for row in batch.gpus]


def _end_unix_ns(row: Row) -> int:
    return int(row[_RECEIVED] + int(row[_E2E] * 1e9))
