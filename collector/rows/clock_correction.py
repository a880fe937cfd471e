"""Correct the timestamps of a message from a sender whose clock is ahead.

A timestamp's lead is the time by which it is later than the arrival of its message
(`sender_clocks`).
"""

from collections import Counter
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.normalise.values import MAX_AHEAD_NS
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.cold_starts import ColdStart
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.request_rows import PLACE, RequestRows, Row
from telemetry.requests import Basis

TOLERANCE_NS: Final = 10**9
"""Clocks that are ahead by less than this time are not corrected. NTP keeps clocks accurate to
milliseconds."""

_REPLICA, _RECEIVED, _BASIS = PLACE["replica"], PLACE["received_unix_ns"], PLACE["basis"]
_TRACE, _SPAN = PLACE["trace_id"], PLACE["span_id"]
_E2E, _AHEAD = PLACE["e2e_s"], PLACE["clock_ahead_s"]
_CLIENT: Final = Basis.CLIENT.value


def sender_of(row: Row) -> str | None:
    """The replica that sent a request's row, or None if a client sent it."""
    replica: str | None = None if row[_BASIS] == _CLIENT else row[_REPLICA]
    return replica


def end_unix_ns(row: Row) -> int:
    """The uncorrected timestamp of a request's end."""
    return int(row[_RECEIVED] + int(row[_E2E] * 1e9))


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead of a sender. It is the time by which timestamps are later than the arrival of their
    message.

    The default values are for rows without a replica name.

    Attributes:
        lead_ns: the lead of the message, without outliers.
        known_ns: the correction from the sender's messages so far.
        proven_ns: the correction for rows with timestamps before their arrival. It is 0 until
            `sender_clocks.MIN_MESSAGES` messages have arrived. After that, it is `known_ns`.
        shared_ns: the size of the clock's jump if the sender uses the same clock as Tailspan, or 0
            if the sender has its own clock.
        measured_ns: the measured lead of the sender's clock, if known.
    """

    lead_ns: int = 0
    known_ns: int = 0
    proven_ns: int = 0
    shared_ns: int = 0
    measured_ns: int | None = None

    @property
    def moves(self) -> bool:
        """Whether all rows of the sender are corrected. If it is false, only rows with timestamps
        later than their arrival are corrected."""
        return bool(self.proven_ns or self.shared_ns)

    def ahead_ns(self, row_lead_ns: int) -> int | None:
        """Return the correction of a row. Return None if the row is further ahead than its
        message's lead."""
        base_ns = self.shared_ns or self.proven_ns
        if row_lead_ns - base_ns <= TOLERANCE_NS:
            return base_ns
        if self.shared_ns or row_lead_ns > self.lead_ns:
            return None
        near = abs(self.lead_ns - self.known_ns) <= TOLERANCE_NS
        return self.known_ns if near else self.lead_ns


class Correction:
    """Corrects the timestamps in the rows of one message.

    Args:
        set_back: maps a row's key, which contains the uncorrected timestamp, to the row's
            correction in ns. `apply` adds the corrections of this message.
    """

    def __init__(
        self,
        leads: Mapping[str | None, Lead],
        set_back: MutableMapping[Hashable, int],
        arrived_unix_ns: int,
        own_ns: int,
    ) -> None:
        self._leads = leads
        self._set_back = set_back
        self._arrived_unix_ns = arrived_unix_ns
        self._own_ns = own_ns
        self.rows: Counter[str | None] = Counter()

    def apply(self, batch: NormalisedBatch) -> None:
        """Correct the rows in place. Refuse and count rows that cannot be corrected."""
        kept = [self._request(batch, row) for row in batch.requests.rows]
        batch.requests = RequestRows([row for row in kept if row is not None])
        reports = [self._in_flight(batch, report) for report in batch.in_flight]
        batch.in_flight = [report for report in reports if report is not None]
        probes = [self._probe(batch, probe) for probe in batch.probes]
        batch.probes = [probe for probe in probes if probe is not None]
        operations = [self._operation(batch, each) for each in batch.operations]
        batch.operations = [each for each in operations if each is not None]
        self._lookups(batch)
        starts = [self._cold_start(batch, each) for each in batch.cold_starts]
        batch.cold_starts = [each for each in starts if each is not None]
        batch.samples, batch.sample_points = self._samples(
            batch, batch.samples, batch.sample_points, "at_unix_ns", "started_unix_ns"
        )
        batch.starts, _ = self._samples(batch, batch.starts, [], "at_unix_ns")
        batch.gpus, batch.gpu_points = self._samples(
            batch, batch.gpus, batch.gpu_points, "at_unix_ns"
        )

    def _request(self, batch: NormalisedBatch, row: Row) -> Row | None:
        sent = (row[_TRACE], row[_SPAN], row[_RECEIVED])
        ahead_ns = self._request_ahead_ns(batch, sent, sender_of(row), end_unix_ns(row))
        if not ahead_ns:
            return row if ahead_ns == 0 else None
        values = list(row)
        values[_RECEIVED] -= ahead_ns
        values[_AHEAD] = ahead_ns / 1e9
        return tuple(values)

    def _in_flight(self, batch: NormalisedBatch, report: InFlightRequest) -> InFlightRequest | None:
        # The row of the ended request will have the same key, so it gets the same correction.
        sent = (report.trace_id, report.span_id, report.received_unix_ns)
        ahead_ns = self._request_ahead_ns(batch, sent, report.replica, report.seen_unix_ns)
        if not ahead_ns:
            return report if ahead_ns == 0 else None
        return replace(
            report,
            received_unix_ns=report.received_unix_ns - ahead_ns,
            seen_unix_ns=report.seen_unix_ns - ahead_ns,
            clock_ahead_s=ahead_ns / 1e9,
        )

    def _probe(self, batch: NormalisedBatch, probe: Probe) -> Probe | None:
        # A probe has no replica name, like a client's row.
        sent = (probe.trace_id, probe.span_id, probe.at_unix_ns)
        ahead_ns = self._request_ahead_ns(batch, sent, None, probe.at_unix_ns)
        if not ahead_ns:
            return probe if ahead_ns == 0 else None
        return replace(probe, at_unix_ns=probe.at_unix_ns - ahead_ns, clock_ahead_s=ahead_ns / 1e9)

    def _operation(
        self, batch: NormalisedBatch, row: ApplicationOperation
    ) -> ApplicationOperation | None:
        # If the span is also a request, its row has the same key and gets the same correction.
        sent = (row.trace_id, row.span_id, row.at_unix_ns)
        end_ns = row.at_unix_ns + int(row.length_s * 1e9)
        items = 0 if row.operation is Operation.CALL else 1
        ahead_ns = self._request_ahead_ns(batch, sent, None, end_ns, items)
        if not ahead_ns:
            return row if ahead_ns == 0 else None
        return replace(row, at_unix_ns=row.at_unix_ns - ahead_ns, clock_ahead_s=ahead_ns / 1e9)

    def _cold_start(self, batch: NormalisedBatch, row: ColdStart) -> ColdStart | None:
        sent = (row.trace_id, row.span_id, row.at_unix_ns)
        ahead_ns = self._request_ahead_ns(batch, sent, row.replica, row.ready_unix_ns)
        if not ahead_ns:
            return row if ahead_ns == 0 else None
        return replace(row, at_unix_ns=row.at_unix_ns - ahead_ns, clock_ahead_s=ahead_ns / 1e9)

    def _lookups(self, batch: NormalisedBatch) -> None:
        """Correct the lookups. A span that is also a request has the same key as the request, so
        both rows get the same correction."""
        kept, kept_spans = [], []
        for lookup, spans in zip(batch.lookups, batch.lookup_spans, strict=True):
            sent = (lookup.trace_id, lookup.span_id, lookup.at_unix_ns)
            ahead_ns = self._request_ahead_ns(batch, sent, None, lookup.end_unix_ns, spans)
            if ahead_ns is None:
                continue
            if ahead_ns:
                at_unix_ns = lookup.at_unix_ns - ahead_ns
                lookup = replace(lookup, at_unix_ns=at_unix_ns, clock_ahead_s=ahead_ns / 1e9)
            kept.append(lookup)
            kept_spans.append(spans)
        batch.lookups, batch.lookup_spans = kept, kept_spans

    def _request_ahead_ns(
        self,
        batch: NormalisedBatch,
        sent: Hashable,
        sender: str | None,
        end_ns: int,
        items: int = 1,
    ) -> int | None:
        """The correction of a request, or None if it is refused."""
        lead_ns = end_ns - self._arrived_unix_ns
        ahead_ns = self._ahead_ns(sent, sender, lead_ns)
        if ahead_ns is None:
            # A client on this machine uses the same clock as Tailspan. If this clock jumped, the
            # row's lead is about as large as the jump.
            own_ns = self._own_ns
            ahead_ns = own_ns if abs(lead_ns - own_ns) <= TOLERANCE_NS else lead_ns
            self._remember(sent, sender, ahead_ns)
        if ahead_ns > max(MAX_AHEAD_NS, self._own_ns):
            _refuse(batch, items)
            return None
        return ahead_ns

    def _samples(
        self, batch: NormalisedBatch, rows: Sequence[Any], points: Sequence[int], *instants: str
    ) -> tuple[list[Any], list[int]]:
        """Return the rows to keep. If `points` is given, also return the number of data points for
        each row."""
        kept: list[Any] = []
        kept_points: list[int] = []
        for place, row in enumerate(rows):
            sent = (type(row), row.replica, row.at_unix_ns)
            ahead_ns = self._ahead_ns(sent, row.replica, row.at_unix_ns - self._arrived_unix_ns)
            if ahead_ns is None or ahead_ns > max(MAX_AHEAD_NS, self._own_ns):
                _refuse(batch, points[place] if points else 1)
                if ahead_ns is None:
                    batch.why[Refusal.IN_THE_FUTURE] = "far ahead of the rest of the message"
                continue
            if ahead_ns:
                earlier = {name: getattr(row, name) - ahead_ns for name in instants}
                row = replace(row, **earlier, clock_ahead_s=ahead_ns / 1e9)
            kept.append(row)
            kept_points += points[place : place + 1]
        return kept, kept_points

    def _ahead_ns(self, sent: Hashable, sender: str | None, lead_ns: int) -> int | None:
        earlier_ns = self._set_back.get(sent)
        lead = self._leads.get(sender)
        if earlier_ns is not None or lead is None:
            return earlier_ns or 0
        ahead_ns = lead.ahead_ns(lead_ns)
        if ahead_ns:
            self._remember(sent, sender, ahead_ns)
        return ahead_ns

    def _remember(self, sent: Hashable, sender: str | None, ahead_ns: int) -> None:
        self._set_back[sent] = ahead_ns
        self.rows[sender] += 1


def _refuse(batch: NormalisedBatch, items: int) -> None:
    batch.accepted -= items
    batch.refused[Refusal.IN_THE_FUTURE] += items
