"""Sets a message's rows back by the clock lead that `collector/rows/sender_clocks.py` measured."""

from collections import Counter
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.drop_reasons import Refusal
from collector.normalise.batch import Batch
from collector.normalise.values import MAX_AHEAD_NS
from telemetry.in_flight import InFlightRequest
from telemetry.request_rows import PLACE, RequestRows, Row
from telemetry.requests import Basis

TOLERANCE_NS: Final = 10**9
"""NTP keeps clocks within milliseconds. A lead of less than a second is ignored."""

_REPLICA, _RECEIVED, _BASIS = PLACE["replica"], PLACE["received_unix_ns"], PLACE["basis"]
_TRACE, _SPAN = PLACE["trace_id"], PLACE["span_id"]
_E2E, _AHEAD = PLACE["e2e_s"], PLACE["clock_ahead_s"]
_CLIENT: Final = Basis.CLIENT.value


def sender_of(row: Row) -> str | None:
    """Return the replica that sent a request's row; always None for a client."""
    replica: str | None = None if row[_BASIS] == _CLIENT else row[_REPLICA]
    return replica


def end_unix_ns(row: Row) -> int:
    """Return when a request ended, from the uncorrected row."""
    return int(row[_RECEIVED] + int(row[_E2E] * 1e9))


@dataclass(frozen=True, slots=True)
class Lead:
    """How far a sender's message is ahead of its arrival; the defaults are for unnamed rows.

    Attributes:
        lead_ns: the lead of the message, without outliers.
        known_ns: by how much the sender's earlier rows were set back.
        proven_ns: by how much to set back rows that are not ahead of their arrival.
        shared_ns: by how much our own clock is ahead, for a sender on the same clock; else 0.
    """

    lead_ns: int = 0
    known_ns: int = 0
    proven_ns: int = 0
    shared_ns: int = 0

    @property
    def moves(self) -> bool:
        """Return whether rows are moved even if they are not ahead of their arrival."""
        return bool(self.proven_ns or self.shared_ns)

    def ahead_ns(self, row_lead_ns: int) -> int | None:
        """Return by how much to set a row back; None if it is ahead of the rest of its message."""
        base_ns = self.shared_ns or self.proven_ns
        if row_lead_ns - base_ns <= TOLERANCE_NS:
            return base_ns
        if self.shared_ns or row_lead_ns > self.lead_ns:
            return None
        near = abs(self.lead_ns - self.known_ns) <= TOLERANCE_NS
        return self.known_ns if near else self.lead_ns


class Correction:
    """Subtracts the lead of the sender's clock from the times of one message's rows.

    Args:
        leads: the leads of the senders whose rows may have to be corrected.
        set_back: by how much earlier rows were set back, by their key as sent; updated.
        arrived_unix_ns: when the message arrived.
        own_ns: by how much our own clock is ahead.
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
        """The number of moved rows, by sender."""

    def apply(self, batch: Batch) -> None:
        """Correct the rows of a batch in place. Refuse and count rows that cannot be corrected."""
        kept = [self._request(batch, row) for row in batch.requests.rows]
        batch.requests = RequestRows([row for row in kept if row is not None])
        reports = [self._in_flight(batch, report) for report in batch.in_flight]
        batch.in_flight = [report for report in reports if report is not None]
        batch.samples, batch.sample_points = self._samples(
            batch, batch.samples, batch.sample_points, "at_unix_ns", "started_unix_ns"
        )
        batch.starts, _ = self._samples(batch, batch.starts, [], "at_unix_ns")
        batch.gpus, batch.gpu_points = self._samples(
            batch, batch.gpus, batch.gpu_points, "at_unix_ns"
        )

    def _request(self, batch: Batch, row: Row) -> Row | None:
        sent = (row[_TRACE], row[_SPAN], row[_RECEIVED])
        ahead_ns = self._request_ahead_ns(batch, sent, sender_of(row), end_unix_ns(row))
        if not ahead_ns:
            return row if ahead_ns == 0 else None
        values = list(row)
        values[_RECEIVED] -= ahead_ns
        values[_AHEAD] = ahead_ns / 1e9
        return tuple(values)

    def _in_flight(self, batch: Batch, report: InFlightRequest) -> InFlightRequest | None:
        # The request's later row has the same key, so it gets the same correction.
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

    def _request_ahead_ns(
        self, batch: Batch, sent: Hashable, sender: str | None, end_ns: int
    ) -> int | None:
        """Return by how much to set a request back; None if it is refused."""
        lead_ns = end_ns - self._arrived_unix_ns
        ahead_ns = self._ahead_ns(sent, sender, lead_ns)
        if ahead_ns is None:
            # Correct this row separately. A client on this machine reads the same clock.
            own_ns = self._own_ns
            ahead_ns = own_ns if abs(lead_ns - own_ns) <= TOLERANCE_NS else lead_ns
            self._remember(sent, sender, ahead_ns)
        if ahead_ns > max(MAX_AHEAD_NS, self._own_ns):
            _refuse(batch, 1)
            return None
        return ahead_ns

    def _samples(
        self, batch: Batch, rows: Sequence[Any], points: Sequence[int], *instants: str
    ) -> tuple[list[Any], list[int]]:
        """Return the rows to keep, and the number of data points of each if `points` has them."""
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


def _refuse(batch: Batch, items: int) -> None:
    batch.accepted -= items
    batch.refused[Refusal.IN_THE_FUTURE] += items
