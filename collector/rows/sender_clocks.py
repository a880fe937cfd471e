"""Correct the timestamps of senders whose clocks are ahead.

A timestamp's lead is the time by which it is later than the arrival of its message. The sender's
clock is ahead by at least the lead. A clock that is behind is reported but not corrected, because
it cannot be distinguished from a delayed message. Each replica is a sender. The lead of a message
is the lead of its newest rows, without outliers. The lead of a sender is the median over its last
messages.

- Rows later than their arrival are set back by the message's lead.
- After `MIN_MESSAGES` messages, a sender's median lead is checked. If it is above `TOLERANCE_NS`,
  all rows of the sender are set back, until the median is at most `MIN_NS`. The correction changes
  only if it differs by more than `TOLERANCE_NS`, because each change also changes the start of the
  engine's counters, which looks like a restart of the engine.
- The store decides the correction of samples from the leads, so that all collectors correct them
  equally (`store/sender_clocks.py`).
- A request that is further ahead than the rest of its message is set back by its own lead. A sample
  or engine start that is further ahead is refused, because several samples could get the same
  timestamp.
- A row without a replica name, such as a client's row, is corrected by its own lead.

The sent timestamp is the stored timestamp plus `clock_ahead_s`. A repeated row gets the same
correction, even after a restart or in a different collector (`store/clock_corrections.py`). With a
different correction, the row would be stored twice, because timestamps are part of its key.
Tailspan's own clock can jump (`telemetry.corroborated_time`). Senders that use the same clock are
then corrected by the size of the jump, in either direction.

No I/O. Use it from one event loop only.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import median_high, median_low
from typing import Final

from collector.normalise.batch import NormalisedBatch
from collector.rows.clock_correction import TOLERANCE_NS, Correction, Lead, end_unix_ns, sender_of
from store.sender_clocks import MIN_NS
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import MAX_TRACKED

REMEMBERED: Final = 16
"""Number of messages per sender whose leads are stored. A server sends a message about once a
second."""
MIN_MESSAGES: Final = 3
"""Number of messages after which all rows of a sender can be corrected. With fewer messages, a
single wrong lead could be the median."""
SPREAD_NS: Final = 600 * 10**9
"""A row is an outlier if its lead exceeds the median lead of its message by more than this. An
exporter's queue contains minutes of data."""
MAX_SOURCES: Final = MAX_TRACKED
"""Maximum number of senders whose clocks are measured. Messages of further senders are corrected
individually."""
SILENT_NS: Final = 600 * 10**9
"""A sender that is silent for this time is not reported, and may be replaced."""
MAX_REPEATS: Final = 100_000
"""Maximum number of remembered corrections, for rows that may be sent again (20 MB)."""
UNNAMED: Final = "unnamed"
OTHER: Final = "other"
"""The common name for all senders beyond `MAX_SOURCES`."""


@dataclass(slots=True)
class MeasuredSenderClock:
    """The measured state of one sender's clock."""

    name: str
    leads_ns: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    ahead_ns: int = 0
    measured_ns: int | None = None
    """The measured lead of the clock, or None if it is not known yet. A delayed message makes the
    lead too small, so a small lead is used only after `MIN_MESSAGES` messages."""
    rows: int = 0
    """The number of corrected rows."""
    last_seen_unix_ns: int = 0

    @property
    def lead_s(self) -> float:
        """The median lead over the last messages, in seconds. It is usually negative."""
        return median_high(self.leads_ns) / 1e9 if self.leads_ns else 0.0

    @property
    def ahead_s(self) -> float:
        """`ahead_ns` in seconds."""
        return self.ahead_ns / 1e9

    @property
    def proven_ns(self) -> int:
        """The correction of rows whose timestamps are not later than their arrival."""
        return self.ahead_ns if len(self.leads_ns) >= MIN_MESSAGES else 0

    def learn(self, lead_ns: int, at_unix_ns: int) -> None:
        """Add a message's lead."""
        self.last_seen_unix_ns = at_unix_ns
        if self.name in (UNNAMED, OTHER):
            self.leads_ns.clear()
        self.leads_ns.append(lead_ns)
        middle_ns = median_high(self.leads_ns)
        self.measured_ns = (
            middle_ns if len(self.leads_ns) >= MIN_MESSAGES or middle_ns > MIN_NS else None
        )
        if middle_ns <= (MIN_NS if self.ahead_ns else TOLERANCE_NS):
            self.ahead_ns = 0
        elif abs(middle_ns - self.ahead_ns) > TOLERANCE_NS:
            self.ahead_ns = middle_ns


class SenderClocks:
    """Corrects the timestamps of senders whose clocks are ahead, and keeps the measured state of
    these clocks."""

    def __init__(self, own: CorroboratedClock | None = None) -> None:
        self._own = own
        self._sources: OrderedDict[str, MeasuredSenderClock] = OrderedDict()
        self._unnamed, self._other = MeasuredSenderClock(UNNAMED), MeasuredSenderClock(OTHER)
        self._now_unix_ns = 0
        self._set_back: OrderedDict[Hashable, int] = OrderedDict()
        self.overflows = 0

    def __call__(self, batch: NormalisedBatch, arrived_unix_ns: int) -> None:
        """Correct the timestamps of a message's rows."""
        self._now_unix_ns = arrived_unix_ns
        ends: dict[str | None, list[int]] = defaultdict(list)
        for row in batch.requests.rows:
            ends[sender_of(row)].append(end_unix_ns(row))
        for rows in (batch.samples, batch.starts, batch.gpus):
            for each in rows:
                ends[each.replica].append(each.at_unix_ns)
        for report in batch.in_flight:
            ends[report.replica].append(report.seen_unix_ns)
        for probe in batch.probes:
            ends[None].append(probe.at_unix_ns)
        for operation in batch.operations:
            ends[None].append(operation.at_unix_ns + int(operation.length_s * 1e9))
        for start in batch.cold_starts:
            ends[start.replica].append(start.ready_unix_ns)
        for lookup in batch.lookups:
            ends[None].append(lookup.end_unix_ns)
        own_ns = 0 if self._own is None else self._own.ahead_ns
        leads: dict[str | None, Lead] = {}
        for sender, several in ends.items():
            lead = self._lead(sender, several, arrived_unix_ns, own_ns)
            if sender is not None and lead.measured_ns is not None:
                batch.leads_ns[sender] = lead.measured_ns
            if lead.moves or max(several) - arrived_unix_ns > TOLERANCE_NS:
                leads[sender] = lead
        if leads or self._set_back:
            correction = Correction(leads, self._set_back, arrived_unix_ns, own_ns)
            correction.apply(batch)
            for sender, moved in correction.rows.items():
                self._source_of(sender).rows += moved
            while len(self._set_back) > MAX_REPEATS:
                self._set_back.popitem(last=False)

    def report(self) -> list[MeasuredSenderClock]:
        """The senders that sent a message recently, sorted by name."""
        since = self._now_unix_ns - SILENT_NS
        all_ = (*list(self._sources.values()), self._unnamed, self._other)
        found = [each for each in all_ if each.last_seen_unix_ns >= max(since, 1)]
        return sorted(found, key=lambda source: source.name)

    def _lead(
        self, sender: str | None, ends: Sequence[int], arrived_unix_ns: int, own_ns: int
    ) -> Lead:
        if sender is None:
            self._unnamed.learn(max(ends) - arrived_unix_ns, arrived_unix_ns)
            return Lead()
        newest_unix_ns = ends[0]
        if len(ends) > 1:
            latest = median_low(ends) + SPREAD_NS
            newest_unix_ns = max(each for each in ends if each <= latest)
        lead_ns = newest_unix_ns - arrived_unix_ns
        source = self._source(sender, arrived_unix_ns)
        if self._own is not None:
            self._own.record_message(sender, newest_unix_ns)
            # A new sender uses Tailspan's clock if its lead is closer to the clock's jump than to
            # 0.
            new = not source.leads_ns and own_ns > 0 and abs(lead_ns - own_ns) < lead_ns
            if own_ns and (self._own.shares(sender) or new):
                source.last_seen_unix_ns = arrived_unix_ns
                return Lead(lead_ns, shared_ns=own_ns)
        source.learn(lead_ns, arrived_unix_ns)
        return Lead(lead_ns, source.ahead_ns, source.proven_ns, measured_ns=source.measured_ns)

    def _source_of(self, sender: str | None) -> MeasuredSenderClock:
        return self._unnamed if sender is None else self._sources.get(sender, self._other)

    def _source(self, name: str, now_unix_ns: int) -> MeasuredSenderClock:
        source = self._sources.pop(name, None)
        if source is None and len(self._sources) >= MAX_SOURCES:
            longest_silent = next(iter(self._sources.values()))
            if now_unix_ns - longest_silent.last_seen_unix_ns < SILENT_NS:
                self.overflows += 1
                return self._other
            self._sources.popitem(last=False)
        source = source or MeasuredSenderClock(name)
        self._sources[name] = source
        return source
