import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import func, select

from collector.counters import Counters
from collector.errors import MalformedError, StoreFailedError, TooLargeError
from collector.intake import Intake
from collector.limits.sender_limits import CollectorLimits
from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import normalise_points
from collector.normalise.layout_learning import Learned
from collector.normalise.otlp_envelope import MAX_PARTS
from collector.otlp import layout_reader
from collector.otlp.layout_reader import MAX_AT_ONCE_BYTES, MAX_LEARNED_BYTES, LayoutReader
from collector.otlp.message_reader import LocalReader
from collector.signals import METRICS, TRACES, Signal
from collector.testing import MemorySink
from exporters.prometheus import PrometheusExporter
from store.database import open_database
from store.schema import GPUS, SAMPLES
from store.writer import Writer
from tests.collector.normalise.metric_messages import NOW_UNIX_NS, engine_message, gpu_message

Message = Callable[..., ExportTraceServiceRequest]


class _Counting(LocalReader):
    def __init__(self) -> None:
        self.read_messages = 0
        self.closed = False

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        self.read_messages += 1
        return super().read(signal, body, json, now_unix_ns)

    def close(self) -> None:
        self.closed = True


def test_the_third_message_of_a_sender_has_a_known_layout() -> None:
    """The second message shows that the sender repeats its layout."""
    other = _Counting()
    reader = LayoutReader(other)
    for second in range(5):
        body = engine_message(second)
        assert reader.read(METRICS, body, False, NOW_UNIX_NS) == normalise_points(body, NOW_UNIX_NS)
        assert other.read_messages == min(second + 1, 2)
    known = reader.read_known(METRICS, engine_message(9), NOW_UNIX_NS)
    assert known == normalise_points(engine_message(9), NOW_UNIX_NS)


def test_a_layout_that_changes_and_returns_is_still_known() -> None:
    """The layout of a GPU's messages changes with its throttle reasons."""
    other = _Counting()
    reader = LayoutReader(other)
    for second in range(12):
        reasons = "sw_power_cap" if second % 3 else ""
        reader.read(METRICS, gpu_message(second, throttle_reasons=reasons), False, NOW_UNIX_NS)
    assert other.read_messages == 4


def test_spans_and_json_are_passed_on(trace_message: Message) -> None:
    other = _Counting()
    reader = LayoutReader(other)
    spans = trace_message().SerializeToString()
    for _ in range(3):
        assert len(reader.read(TRACES, spans, False, NOW_UNIX_NS).requests) == 1
        assert reader.read_known(TRACES, spans, NOW_UNIX_NS) is None
        assert reader.read(METRICS, b"{}", True, NOW_UNIX_NS).empty
    assert other.read_messages == 6


def test_large_messages_are_not_read_on_the_event_loop() -> None:
    """Large messages are read in the reading thread, which also uses the layouts."""
    other = _Counting()
    reader = LayoutReader(other)
    for _ in range(2):
        reader.read(METRICS, engine_message(), False, NOW_UNIX_NS)
    gateway = b"".join(engine_message(replica=f"replica-{count}") for count in range(20))
    assert len(gateway) > MAX_AT_ONCE_BYTES
    assert reader.read_known(METRICS, gateway, NOW_UNIX_NS) is None
    assert len(reader.read(METRICS, gateway, False, NOW_UNIX_NS).samples) == 20
    assert other.read_messages == 2


def test_large_messages_are_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[int] = []

    def note(body: bytes, _now_unix_ns: int) -> list[Learned]:
        learned.append(len(body))
        return []

    monkeypatch.setattr(layout_reader, "learn", note)
    reader = LayoutReader(LocalReader())
    large = engine_message(engines=60)
    assert len(large) > MAX_LEARNED_BYTES
    for body in (large, gpu_message(gpus=150), engine_message()) * 3:
        reader.read(METRICS, body, False, NOW_UNIX_NS)
    assert set(learned) == {len(engine_message())}


def test_errors_are_those_of_the_other_reader() -> None:
    reader = LayoutReader(LocalReader())
    for body, error in (
        (b"\xff" * 9, MalformedError),
        (b"\x0a\x00" * (MAX_PARTS + 1), TooLargeError),
    ):
        assert reader.read_known(METRICS, body, NOW_UNIX_NS) is None
        with pytest.raises(error):
            reader.read(METRICS, body, False, NOW_UNIX_NS)


def test_a_defect_in_learning_does_not_lose_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(layout_reader, "learn", fail)
    reader = LayoutReader(LocalReader())
    for second in range(4):
        assert len(reader.read(METRICS, engine_message(second), False, NOW_UNIX_NS).samples) == 1


def test_closing_closes_the_other_reader() -> None:
    other = _Counting()
    LayoutReader(other).close()
    assert other.closed


def _intake(sink: MemorySink, other: LocalReader) -> Intake:
    return Intake(sink, [], Counters(), lambda: NOW_UNIX_NS, CollectorLimits(), LayoutReader(other))


def test_known_messages_are_stored_and_counted_like_others() -> None:
    sink, other = MemorySink(), _Counting()
    intake = _intake(sink, other)

    async def send() -> None:
        for second in range(6):
            answer = await intake.receive(METRICS, engine_message(second), peer="a")
            assert not answer.partial_success.rejected_data_points  # type: ignore[attr-defined]
        await intake.stop(1)

    asyncio.run(send())
    assert other.read_messages == 2
    points = normalise_points(engine_message(), NOW_UNIX_NS).accepted
    assert [row.at_unix_ns - NOW_UNIX_NS for row in sink.samples] == [
        second * 10**9 for second in range(6)
    ]
    assert intake._counters.report().items["metrics", "stored", ""] == 6 * points
    assert not intake._queue.has_work()
    assert intake._queue.has_room("a")


def test_a_known_message_may_arrive_late_and_twice(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    times = [0]  # the exporter started before the engine
    exporter, other = PrometheusExporter(clock_unix_ns=lambda: times[-1]), _Counting()
    times.append(NOW_UNIX_NS)

    async def send(writer: Writer) -> None:
        intake = Intake(
            *(
                writer,
                [exporter],
                Counters(),
                lambda: NOW_UNIX_NS,
                CollectorLimits(),
                LayoutReader(other),
            ),
            gpu_listeners=[exporter],
        )
        for second in (0, 1, 5, 3, 5, 0, 4, 2):
            await intake.receive(METRICS, engine_message(second), peer="a")
            await intake.receive(METRICS, gpu_message(second), peer="a")
        await intake.stop(1)

    with Writer(engine, gather_s=0.001) as writer:
        asyncio.run(send(writer))
    with engine.connect() as connection:
        count = select(func.count()).select_from
        assert connection.scalar(count(SAMPLES)) == 6
        assert connection.scalar(count(GPUS)) == 12
    engine.dispose()
    assert other.read_messages == 4
    [view] = exporter._engines.view().values()
    assert view.last_sample_unix_ns == NOW_UNIX_NS + 5 * 10**9
    assert view.totals["steps_total"] == 1_005


def test_a_known_message_that_is_not_stored_is_not_acknowledged() -> None:
    sink = MemorySink()
    intake = _intake(sink, LocalReader())

    async def send() -> None:
        for second in range(3):
            await intake.receive(METRICS, engine_message(second), peer="a")
        sink.failure = OSError("disk full")
        with pytest.raises(StoreFailedError):
            await intake.receive(METRICS, engine_message(3), peer="a")
        await intake.stop(1)

    asyncio.run(send())
    assert intake._queue._loads == {}


def test_a_sender_with_many_uncommitted_rows_waits_although_its_layout_is_known() -> None:
    sink, other = MemorySink(held=True), _Counting()
    intake = _intake(sink, other)
    body = engine_message()
    points = normalise_points(body, NOW_UNIX_NS).accepted

    async def send() -> None:
        for _ in range(2):
            intake._reading.read(METRICS, body, False, NOW_UNIX_NS)
        tasks = [
            asyncio.create_task(intake.receive(METRICS, engine_message(at), peer="a"))
            for at in range(8192 // points + 5)
        ]
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(sink._waiting) == -(-8192 // points)
        while not all(task.done() for task in tasks):
            sink.release()
            await asyncio.sleep(0.001)
        await intake.stop(1)

    asyncio.run(send())
    assert len(sink.samples) == 8192 // points + 5
