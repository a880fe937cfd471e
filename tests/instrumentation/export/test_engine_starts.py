from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.engine_starts import EngineStarts
from tailspan_vllm.export.retry import FIRST_PAUSE_S, Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict

RESOURCE = Resource({names.SERVICE_INSTANCE_ID: "replica-1"})


class Collector:
    def __init__(self, *answers: ExportVerdict) -> None:
        self._answers = list(answers)
        self.received: list[Any] = []

    def __call__(self, message: ExportLogsServiceRequest) -> ExportResponse:
        self.received.append(message.resource_logs[0].scope_logs[0].log_records)
        return ExportResponse(self._answers.pop(0) if self._answers else ExportVerdict.ACCEPTED)


def a_state(config: str | None = "c0ffee00", **changes: Any) -> EngineState:
    return EngineState(**{"engine": 0, "started_unix_ns": 10**18, "config": config, **changes})


def test_a_start_is_sent_once_if_accepted() -> None:
    collector = Collector()
    starts = EngineStarts(collector)
    for second in range(5):
        starts.send([a_state(arguments={"scheduler.max_num_seqs": 4})], RESOURCE, float(second))
    ((record,),) = collector.received
    assert record.event_name == names.ENGINE_STARTED
    assert record.time_unix_nano == 10**18
    assert f"{names.ARGUMENT}scheduler.max_num_seqs" in {pair.key for pair in record.attributes}


def test_a_start_is_sent_again_at_growing_intervals() -> None:
    collector = Collector(ExportVerdict.UNREACHABLE, ExportVerdict.UNREACHABLE)
    starts = EngineStarts(collector, backoff=Backoff(jitter=lambda: 1.0))
    for now in (0.0, 0.5 * FIRST_PAUSE_S, FIRST_PAUSE_S, 2.5 * FIRST_PAUSE_S, 3 * FIRST_PAUSE_S):
        starts.send([a_state()], RESOURCE, now)
    assert len(collector.received) == 3
    assert len({record[0].SerializeToString() for record in collector.received}) == 1


def test_a_start_that_is_refused_is_not_sent_again_and_takes_no_other_along() -> None:
    collector = Collector(ExportVerdict.REFUSED)
    starts = EngineStarts(collector)
    for second in range(3):
        starts.send([a_state(), a_state(engine=1)], RESOURCE, float(second))
    assert len(collector.received) == 2


def test_after_an_outage_it_is_resent_unchanged() -> None:
    """After an outage, the collector's database may be empty."""
    collector = Collector()
    starts = EngineStarts(collector)
    starts.send([a_state()], RESOURCE, 0.0)
    starts.resend()
    starts.send([a_state()], RESOURCE, 1.0)
    first, second = collector.received
    assert first[0] == second[0]


def test_another_configuration_is_another_start() -> None:
    collector = Collector()
    starts = EngineStarts(collector, clock_unix_ns=lambda: 2 * 10**18)
    starts.send([a_state()], RESOURCE, 0.0)
    starts.send([a_state("decade00")], RESOURCE, 1.0)
    starts.send([a_state("decade00", started_unix_ns=3 * 10**18)], RESOURCE, 2.0)
    instants = [records[0].time_unix_nano for records in collector.received]
    assert instants == [10**18, 2 * 10**18, 3 * 10**18]


def test_an_engine_without_configuration_sends_no_start() -> None:
    collector = Collector()
    EngineStarts(collector).send([a_state(None)], RESOURCE, 0.0)
    assert not collector.received
