import asyncio
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from probe import sender as sending
from probe.errors import PlanError
from probe.sender import ResultSender
from telemetry.probes import Probe, ProbeOutcome
from tests.probe.conftest import Script, listening


@pytest.fixture
def result() -> Callable[[int], Probe]:
    def make(number: int) -> Probe:
        return Probe(
            trace_id=f"{number + 1:032x}",
            span_id="0" * 15 + "1",
            at_unix_ns=10**18 + number,
            region="eu",
            endpoint="chat",
            kind="openai-chat",
            outcome=ProbeOutcome.STOP,
        )

    return make


PRINTED: list[str] = []


def _flush(script: Script, results: list[Probe], **environment: str) -> ResultSender:
    async def run() -> ResultSender:
        async with listening(script) as port:
            sender = ResultSender(f"http://127.0.0.1:{port}", "eu", environment, PRINTED.append)
            for each in results:
                sender.offer(each)
            await sender.flush(2.0)
            return sender

    return asyncio.run(run())


def test_results_are_spans_of_the_prober(result: Callable[[int], Probe]) -> None:
    script = Script(headers="content-type: application/x-protobuf\r\n")
    headers = "authorization=Bearer%20token"
    sender = _flush(script, [result(n) for n in range(600)], OTEL_EXPORTER_OTLP_HEADERS=headers)
    assert (sender.sent, sender.waiting, sender.dropped) == (600, 0, 0)
    assert [path for path, _, _ in script.asked] == ["/v1/traces"] * 2
    assert script.asked[0][1]["authorization"] == "Bearer token"
    spans = ExportTraceServiceRequest.FromString(script.asked[0][2]).resource_spans[0]
    assert spans.scope_spans[0].scope.name == "tailspan.probe"
    assert len(spans.scope_spans[0].spans) == 512


def test_a_variable_does_not_change_the_collector(result: Callable[[int], Probe]) -> None:
    """The collector in the plan is the one that may receive the token."""
    script, elsewhere = Script(), "http://127.0.0.1:1/v1/traces"
    sender = _flush(script, [result(0)], OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=elsewhere)
    assert (sender.sent, len(script.asked)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "waiting", "dropped"),
    [("503 Busy", 3, 0), ("429 Slow", 3, 0), ("400 Bad", 0, 3), ("401 No", 0, 3)],
)
def test_a_busy_collector_gets_results_later_and_a_refusal_is_counted(
    status: str, waiting: int, dropped: int, result: Callable[[int], Probe]
) -> None:
    sender = _flush(Script(status=status), [result(n) for n in range(3)])
    assert (sender.waiting, sender.dropped) == (waiting, dropped)
    assert status[:3] in (sender.trouble or "")
    assert "does not take results: HTTP " + status[:3] in PRINTED[-1]


def test_a_full_queue_drops_the_oldest(
    result: Callable[[int], Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "QUEUED", 2)
    sender = ResultSender("http://127.0.0.1:1", "eu", {})
    for number in range(3):
        sender.offer(result(number))
    assert (sender.waiting, sender.dropped) == (2, 1)


def test_a_defect_of_the_prober_delays_the_results(
    result: Callable[[int], Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(sending, "exchange", fail)
    sender = _flush(Script(), [result(0)])
    assert (sender.waiting, sender.dropped) == (1, 0)
    assert sender.trouble == "RuntimeError('no thread')"


def test_a_malformed_variable_is_an_error() -> None:
    with pytest.raises(PlanError, match="OTEL_EXPORTER_OTLP_CERTIFICATE"):
        ResultSender("https://h:4318", "eu", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/dev/null"})
    with pytest.raises(PlanError, match="OTEL_EXPORTER_OTLP_TIMEOUT"):
        ResultSender("https://h:4318", "eu", {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})
