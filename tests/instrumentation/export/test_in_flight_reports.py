import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.export.in_flight_reports import (
    MAX_REQUESTS,
    REFUSED_PAUSE_S,
    REPORT_S,
    InFlightReports,
)
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.exchange import Exchange, Flight
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record_builder import RecordBuilder

from collector.normalise.log_events import normalise_events

RESOURCE = Resource({names.SERVICE_INSTANCE_ID: "replica-1", names.CLOUD_REGION: "here"})
BUILDER = RecordBuilder({}, b"x-tenant-id")
STATE = SimpleNamespace(
    lora_name="adapter", prompt_len=20, output_kind=SimpleNamespace(name="DELTA")
)


class Collector:
    """A collector that accepts or refuses reports; the test sets the time."""

    def __init__(self, *answers: ExportVerdict) -> None:
        self.now = time.monotonic()
        self._answers = list(answers)
        self.messages: list[ExportLogsServiceRequest] = []
        self.reports = InFlightReports(self, lambda: self.now, Backoff(jitter=lambda: 1.0))

    def __call__(self, message: ExportLogsServiceRequest) -> ExportResponse:
        self.messages.append(message)
        return ExportResponse(self._answers.pop(0) if self._answers else ExportVerdict.ACCEPTED)

    def send(self, in_flight: InFlight, after_s: float = 0.0) -> None:
        self.now += after_s
        self.reports.send(in_flight, BUILDER.in_flight, RESOURCE)

    def received(self) -> list[Any]:
        ahead_ns = time.time_ns() + 86_400 * 10**9  # the reports carry future times
        batch = normalise_events(self.messages[-1].SerializeToString(), ahead_ns)
        assert not batch.refused
        return batch.in_flight


def a_flight(age_s: float, **headers: bytes) -> Flight:
    given = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    scope = {"method": "POST", "path": "/v1/chat/completions", "headers": given}
    exchange = Exchange(scope, {b"x-tenant-id", b"traceparent"})
    exchange.received -= age_s
    flight = Flight(exchange, None, None)
    flight.copy_parameters(STATE)
    exchange.flights[flight] = None
    return flight


def in_flight(*flights: Flight) -> InFlight:
    made = InFlight()
    for flight in flights:
        made.add(flight)
    return made


def test_a_report_has_the_same_fields_as_the_row() -> None:
    collector = Collector()
    trace = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    flight = a_flight(20, x_tenant_id=b"acme", traceparent=trace)
    assert flight.exchange is not None
    flight.exchange.answered({"status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    collector.send(in_flight(flight))
    (report,) = collector.received()
    flight.ended = flight.exchange.delivered = time.monotonic()
    record = BUILDER.flight(flight)
    span = span_of(record, RESOURCE)
    assert span.context is not None
    assert report.span_id == f"{span.context.span_id:016x}"
    assert report.trace_id == f"{span.context.trace_id:032x}" == "a" * 32
    assert report.received_unix_ns == span.start_time
    assert (report.tenant, report.route) == ("acme", "/v1/chat/completions")
    assert (report.lora, report.prompt_tokens, report.streamed) == ("adapter", 20, True)
    assert (report.replica, report.region) == ("replica-1", "here")
    assert (report.ttft_s, report.reported_in_flight_s) == (None, None)
    assert record.reported_in_flight_s == report.age_s
    assert report.age_s == pytest.approx(20, abs=10)


def test_only_requests_that_have_run_for_long_are_reported() -> None:
    collector = Collector()
    collector.send(in_flight(a_flight(4.9), a_flight(1)))
    assert not collector.messages
    collector.send(in_flight(a_flight(9), a_flight(1)), REPORT_S)
    assert len(collector.received()) == 2


def test_an_offline_request_is_not_reported() -> None:
    collector = Collector()
    collector.now += 60
    collector.send(in_flight(Flight(None, None, None)))
    assert not collector.messages


def test_each_report_has_the_age_at_the_previous_one() -> None:
    collector, flight = Collector(), a_flight(20)
    several = in_flight(flight)
    collector.send(several)
    (first,) = collector.received()
    collector.send(several, 0.5 * REPORT_S)
    assert len(collector.messages) == 1
    assert flight.exchange is not None
    flight.exchange.first_byte = flight.exchange.received + 22.0
    collector.send(several, 0.5 * REPORT_S)
    (second,) = collector.received()
    assert second.reported_in_flight_s == first.age_s
    assert second.age_s == pytest.approx(first.age_s + REPORT_S)
    assert second.ttft_s == pytest.approx(22.0)


def test_a_report_is_sent_until_it_is_accepted_before_the_next_one() -> None:
    collector = Collector(ExportVerdict.UNREACHABLE, ExportVerdict.BUSY)
    several = in_flight(a_flight(20))
    for _ in range(3):
        collector.send(several, 2 * REPORT_S)
    assert len({message.SerializeToString() for message in collector.messages}) == 1
    collector.send(several, REPORT_S)
    assert len({message.SerializeToString() for message in collector.messages}) == 2


def test_a_refused_report_does_not_count_as_sent() -> None:
    collector, flight = Collector(ExportVerdict.REFUSED), a_flight(20)
    collector.send(in_flight(flight))
    assert flight.reported_at is None
    collector.send(in_flight(flight), REFUSED_PAUSE_S - 1)
    assert len(collector.messages) == 1
    collector.send(in_flight(flight), 1)
    (report,) = collector.received()
    assert report.reported_in_flight_s is None


def test_a_request_that_ends_during_a_report_is_omitted() -> None:
    collector, several = Collector(), in_flight(a_flight(20), a_flight(20))

    def build(flight: Flight, now: float) -> Any:
        several.remove(flight)
        return BUILDER.in_flight(flight, now)

    collector.reports.send(several, build, RESOURCE)
    assert not collector.messages


def test_a_report_of_very_many_requests_is_bounded() -> None:
    collector = Collector()
    oldest = [a_flight(60) for _ in range(MAX_REQUESTS)]
    rest = a_flight(30)
    assert rest.exchange is not None
    several = in_flight(*oldest, *(Flight(rest.exchange, None, None) for _ in range(20_000)))
    collector.send(several)
    assert len(collector.received()) == MAX_REQUESTS
    assert {each.span_id for each in collector.received()} == {f"{f.span_id:016x}" for f in oldest}
    assert len(collector.messages[0].SerializeToString()) < 2**20
    several.remove_all(oldest)
    collector.send(several, REPORT_S)
    assert len(collector.received()) == MAX_REQUESTS
    assert not collector.reports._before


def test_requests_that_start_and_end_during_a_report_do_no_harm() -> None:
    several, stop = in_flight(), threading.Event()
    flights = [a_flight(20) for _ in range(600)]

    def serve() -> None:
        for number in itertools.count():
            flight = flights[number % 600]
            several.add(flight)
            if number % 3:
                several.remove(flight)
            if len(several) > 500:
                several.remove_all(several.oldest(400))
            if stop.is_set():
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        collector = Collector()
        for _ in range(20):
            collector.send(several, REPORT_S)
            assert all(each.age_s >= 5 for each in collector.received())
    finally:
        stop.set()
        thread.join()
