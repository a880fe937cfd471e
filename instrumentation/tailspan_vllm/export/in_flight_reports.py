"""Reports unfinished requests, so that a request that is too slow counts as bad before it ends.

A report is a log record (`tailspan.request.in_flight`) with the ids of the future span. A report
contains the request's age at the previous report. The span contains the age at the last report. The
next message is built only after the current message was accepted or refused.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource

from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict
from tailspan_vllm.otlp.log_events import in_flight_message_of
from tailspan_vllm.request.exchange import Flight
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record import RequestRecord

YOUNGEST_S: Final = 5.0
"""Most younger requests end before the next message."""

REPORT_S: Final = 10.0
"""Reports are more frequent than evaluations of objectives (every 15 s)."""

MAX_REQUESTS: Final = 1_000
"""Maximum number of requests per message. vLLM runs at most 1,024 at a time (`max_num_seqs`)."""

REFUSED_PAUSE_S: Final = 300.0
"""Pause after a refused report. Many backends never accept log records."""

Export = Callable[[ExportLogsServiceRequest], ExportResponse]
BuildInFlight = Callable[[Flight, float], RequestRecord]


class InFlightReports:
    """Use this object only on one thread."""

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
        """The pending requests, with the time of their previous report."""

    def send(self, in_flight: InFlight, build: BuildInFlight, resource: Resource) -> None:
        """Send a report if one is due."""
        now = self._clock()
        if self._pending is None and now >= self._due:
            self._due = now + REPORT_S
            records = self._records(in_flight, build, now)
            if records:
                self._pending = in_flight_message_of(records, resource)
        if self._pending is None or not self._backoff.due(now):
            return
        outcome = self._export(self._pending)
        if outcome.retryable:
            self._backoff.wait(now, outcome.wait_s)
            return
        self._backoff.reset()
        if outcome.verdict is not ExportVerdict.ACCEPTED:
            self._due = now + REFUSED_PAUSE_S
            for flight, before in self._before:
                flight.reported_at = before
        self._pending, self._before = None, []

    def _records(
        self, in_flight: InFlight, build: BuildInFlight, now: float
    ) -> Sequence[RequestRecord]:
        self._before, records = [], []
        for flight in in_flight.oldest(MAX_REQUESTS):
            if flight.exchange is None or now - flight.exchange.received < YOUNGEST_S:
                continue
            record, before = build(flight, now), flight.reported_at
            flight.reported_at = now
            # If a request ends after this check, its span contains the new `reported_at`.
            if flight in in_flight:
                records.append(record)
                self._before.append((flight, before))
            else:
                flight.reported_at = before
        return records
