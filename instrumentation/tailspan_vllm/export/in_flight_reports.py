"""Reports requests that have not ended, so that one that is too late counts while it runs.

Each report is a log record (`tailspan.request.in_flight`) under the ids of the span that follows.
A message is sent until the collector accepts or refuses it, and no other is made meanwhile: so
each report, and in the end the span, can say how old the request was at the last one.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource

from tailspan_vllm.export.outbox import Backoff
from tailspan_vllm.export.transport import Outcome, Verdict
from tailspan_vllm.otlp.log_events import in_flight_message_of
from tailspan_vllm.request.exchange import Flight
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record import RequestRecord

YOUNGEST_S: Final = 5.0
"""Younger requests are not reported: they may end before the next export anyway."""

REPORT_S: Final = 10.0
"""Between two reports. Objectives are evaluated in steps of 15 s: each step has one."""

MOST: Final = 1_000
"""Requests in one report, the oldest first; the others are counted when they end. vLLM runs up to
1,024 at once on the largest GPUs (`max_num_seqs`)."""

REFUSED_PAUSE_S: Final = 300.0
"""Until the next report after one that was refused: many backends take no log records."""

Export = Callable[[ExportLogsServiceRequest], Outcome]
TellInFlight = Callable[[Flight, float], RequestRecord]
"""Builds the record of a flight as of an instant."""


class InFlightReports:
    """Reports one process's requests in flight. Use it on one thread only.

    Args:
        export: sends a message.
        clock: monotonic seconds.
        backoff: when to send again.
    """

    def __init__(
        self,
        export: Export,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._export = export
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._due = 0.0
        self._pending: ExportLogsServiceRequest | None = None
        self._before: list[tuple[Flight, float | None]] = []
        """The flights of the pending message, and when each was reported before."""

    def send(self, in_flight: InFlight, tell: TellInFlight, resource: Resource) -> None:
        """Send a report if one is due.

        Args:
            in_flight: the requests that have not ended.
            tell: builds their records.
            resource: this process.
        """
        now = self._clock()
        if self._pending is None and now >= self._due:
            self._due = now + REPORT_S
            records = self._records(in_flight, tell, now)
            if records:
                self._pending = in_flight_message_of(records, resource)
        if self._pending is None or not self._backoff.due(now):
            return
        outcome = self._export(self._pending)
        if outcome.retryable:
            self._backoff.wait(now, outcome.wait_s)
            return
        self._backoff.reset()
        if outcome.verdict is not Verdict.ACCEPTED:
            self._due = now + REFUSED_PAUSE_S
            for flight, before in self._before:
                flight.reported_at = before
        self._pending, self._before = None, []

    def _records(
        self, in_flight: InFlight, tell: TellInFlight, now: float
    ) -> Sequence[RequestRecord]:
        self._before, records = [], []
        for flight in in_flight.oldest(MOST):
            if flight.exchange is None or now - flight.exchange.received < YOUNGEST_S:
                continue
            record, before = tell(flight, now), flight.reported_at
            flight.reported_at = now
            # Checked after it is noted: a request that ends from now on says so in its span.
            if flight in in_flight:
                records.append(record)
                self._before.append((flight, before))
            else:
                flight.reported_at = before
        return records
