import threading
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.transport import NOT_HTTP, ExportResponse, ExportVerdict
from tailspan_vllm.request.record import RequestRecord

from simulator.sending import Batch, BatchSender, EndedRequests, OtlpExport, SampleBatch, Sent
from telemetry.gpus import GpuSample

HTTP2_SETTINGS = bytes.fromhex("000000040000000000")
"""The first frame of a gRPC server, HTTP/2 SETTINGS."""
ACCEPTED = ExportResponse(ExportVerdict.ACCEPTED)
UNREACHABLE = ExportResponse(ExportVerdict.UNREACHABLE)
RESOURCE = Resource({names.SERVICE_INSTANCE_ID: "sim-0", names.SIMULATED: True})


def _requests(count: int = 2) -> EndedRequests:
    record = RequestRecord(
        received=1.0, delivered=2.0, wall_offset_ns=10**18, outcome="stop", basis="http"
    )
    return EndedRequests([(record, RESOURCE)] * count)


def _samples() -> SampleBatch:
    return SampleBatch([(EngineState(0, 10**18, gauges={names.WAITING: 3}), RESOURCE, 10**18 + 5)])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> bool:
        self.now += seconds
        return False


def _sender(
    answers: Callable[[], ExportResponse],
    patience_s: float = 10.0,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[BatchSender, Sent, Clock]:
    clock, sent = Clock(), Sent()

    def prepare(_batch: Batch) -> Callable[[], ExportResponse]:
        return answers

    sender = BatchSender(
        prepare, report, sent, patience_s=patience_s, clock=clock, pause=clock.pause
    )
    return sender, sent, clock


def _finish(sender: BatchSender) -> None:
    sender.drain(threading.Event())
    sender.close(5.0, lambda: None)


def test_spans_and_samples_arrive_unchanged(collector) -> None:  # type: ignore[no-untyped-def]
    """A repeat keeps the ids of its spans, so that the collector stores them once."""
    export = OtlpExport(collector.url, Sent(dropped_requests=7))
    send = export.prepare(_requests(2))
    assert (send(), send()) == (ACCEPTED, ACCEPTED)
    assert export.prepare(_samples())() == ACCEPTED
    export.close()
    assert collector.traces[0] == collector.traces[1]
    (spans,) = collector.traces[0].resource_spans
    assert {a.key for a in spans.resource.attributes} >= {
        names.SERVICE_INSTANCE_ID,
        names.SIMULATED,
    }
    assert len(spans.scope_spans[0].spans) == 2
    assert spans.scope_spans[0].spans[0].start_time_unix_nano == 10**18 + 10**9
    metrics = {m.name: m for m in collector.metrics[0].resource_metrics[0].scope_metrics[0].metrics}
    assert metrics[names.WAITING].gauge.data_points[0].as_int == 3
    assert metrics[names.WAITING].gauge.data_points[0].time_unix_nano == 10**18 + 5
    assert metrics[names.SPANS_DROPPED].sum.data_points[0].as_int == 7


def test_each_replica_sends_its_start_once(collector) -> None:  # type: ignore[no-untyped-def]
    export = OtlpExport(collector.url, Sent())
    state = EngineState(0, 10**18, "m", "c0ffee00", {names.WAITING: 3})
    samples = SampleBatch([(state, RESOURCE, 10**18 + 5), (state, RESOURCE, 10**18 + 6)])
    assert export.prepare(samples)() == ACCEPTED
    assert export.prepare(samples)() == ACCEPTED
    export.close()
    (message,) = collector.events
    ((record,),) = [scoped.log_records for scoped in message.resource_logs[0].scope_logs]
    assert record.event_name == names.ENGINE_STARTED


def test_a_refused_export_is_retried_until_it_is_accepted(collector) -> None:  # type: ignore[no-untyped-def]
    collector.refusals = [503, 503]
    sent = Sent()
    export = OtlpExport(collector.url, sent)
    sender = BatchSender(export.prepare, lambda _: None, sent)
    assert sender.offer(_requests(3))
    _finish(sender)
    export.close()
    assert collector.refused == 2
    assert len(collector.traces) == 1
    assert sent == Sent(requests=3)


def test_a_repeated_batch_counts_its_rejected_points_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector accepts the engines' message, and fails at the GPUs' message."""
    sent = Sent()
    export = OtlpExport("http://127.0.0.1:1", sent)
    answers = [ExportResponse(ExportVerdict.ACCEPTED, rejected=2), UNREACHABLE, ACCEPTED]
    monkeypatch.setattr(export, "_metrics", lambda message: answers.pop(0))
    gpu = GpuSample(replica="sim-0", gpu="0", at_unix_ns=10**18)
    send = export.prepare(SampleBatch([], [(gpu, RESOURCE)]))
    assert (send(), send()) == (UNREACHABLE, ACCEPTED)
    assert sent == Sent(rejected_points=2)


def test_the_reason_for_a_collectors_refusal_is_logged(stranger: Callable[..., str]) -> None:
    """The address may have the collector's gRPC port by mistake."""
    messages: list[str] = []
    sent = Sent()
    export = OtlpExport(stranger(HTTP2_SETTINGS), sent)
    sender = BatchSender(export.prepare, messages.append, sent, patience_s=0.0)
    assert sender.offer(_requests(1))
    _finish(sender)
    export.close()
    assert messages[0].startswith(
        f"an export to the collector failed ({NOT_HTTP}); retrying for up to"
    )


def test_batches_that_are_never_accepted_are_dropped_and_counted() -> None:
    tries = 0

    def refuse() -> ExportResponse:
        nonlocal tries
        tries += 1
        return UNREACHABLE

    sender, sent, clock = _sender(refuse, patience_s=10.0)
    sender.offer(_requests(5))
    sender.drain(threading.Event())
    first_tries, first_s = tries, clock.now
    assert first_tries > 2
    assert 10.0 <= first_s < 20.0
    for _ in range(3):
        sender.offer(_samples())
    _finish(sender)
    assert tries == first_tries + 3
    assert clock.now == first_s
    assert sent == Sent(dropped_requests=5, dropped_samples=3)


def test_a_collector_that_returns_gets_the_rest() -> None:
    answers, messages = iter([UNREACHABLE, ACCEPTED, ACCEPTED]), list[str]()
    sender, sent, _ = _sender(lambda: next(answers), patience_s=0.0, report=messages.append)
    for _ in range(3):
        sender.offer(_requests(1))
    _finish(sender)
    # Each change is reported once: the failure, the lost data and the recovery.
    assert len(messages) == 3
    assert "1 requests and 0 samples dropped so far" in messages[-1]
    assert sent == Sent(requests=2, dropped_requests=1)


def test_an_exporter_that_raises_does_not_end_the_sender() -> None:
    answers: Iterator[OSError | ExportResponse] = iter([OSError("no route"), ACCEPTED])

    def answer() -> ExportResponse:
        one = next(answers)
        if isinstance(one, OSError):
            raise one
        return one

    sender, sent, _ = _sender(answer)
    sender.offer(_requests(4))
    _finish(sender)
    assert sent == Sent(requests=4)


def test_a_full_queue_drops_and_counts_what_is_offered() -> None:
    gate, begun = threading.Event(), threading.Event()

    def hang() -> ExportResponse:
        begun.set()
        return ACCEPTED if gate.wait(30) else UNREACHABLE

    sent = Sent()
    sender = BatchSender(lambda _batch: hang, lambda _: None, sent, capacity=1)
    assert sender.offer(_requests(1))
    assert begun.wait(30)
    assert sender.offer(_requests(1))
    assert not sender.offer(_requests(1))
    stop = threading.Event()
    stop.set()
    assert not sender.put(_samples(), stop)
    gate.set()
    _finish(sender)
    assert sent == Sent(requests=2, dropped_requests=1, dropped_samples=1)


def test_closing_does_not_wait_for_a_collector_that_is_away() -> None:
    abandoned, begun = threading.Event(), threading.Event()

    def hang() -> ExportResponse:
        begun.set()
        abandoned.wait(30)
        return UNREACHABLE

    sent = Sent()
    sender = BatchSender(lambda _batch: hang, lambda _: None, sent)
    for _ in range(3):
        sender.offer(_requests(1))
    assert begun.wait(30)
    sender.close(0.0, abandoned.set)
    assert sent == Sent(dropped_requests=3)


@pytest.mark.parametrize(
    ("status", "verdict", "unavailable"),
    [(400, ExportVerdict.REFUSED, False), (401, ExportVerdict.DENIED, True)],
)
def test_a_refused_batch_is_not_retried(  # type: ignore[no-untyped-def]
    collector, status: int, verdict: ExportVerdict, unavailable: bool
) -> None:
    collector.refusals = [status, status]
    sent, messages = Sent(), list[str]()
    export = OtlpExport(collector.url, sent)
    assert export.prepare(_requests(1))().verdict is verdict
    sender = BatchSender(export.prepare, messages.append, sent)
    sender.offer(_requests(1))
    sender.drain(threading.Event())
    assert sender.unavailable is unavailable
    assert messages[0].startswith(f"an export to the collector failed (HTTP {status}")
    _finish(sender)
    export.close()
    assert sent == Sent(dropped_requests=1)
    assert collector.refused == 2
