import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from sqlalchemy import Engine, func, select
from tailspan_vllm import names
from tailspan_vllm.otlp.log_events import in_flight_message_of
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from alerts.evaluation.counting import EVALUATION_S, count_requests
from alerts.evaluation.evaluator import Evaluator
from alerts.objectives import counted as counted_of
from alerts.openslo.reader import OBJECTIVES, load
from server import http_check
from store.alerting.slo_counts import NUMBERS, read_counted_range, read_counts
from store.database import open_database
from store.requests.in_flight import oldest_seen_unix_ns
from store.schema import REQUESTS
from tests.hostile.conftest import collecting

S = 10**9
SPANS = 20
"""Spans per message."""
AGES_S = (0.0, 1.0, *(float(age_s) for age_s in range(250, 3_650, 250)))
"""Ages of the spans. No gap is longer than 5 min, so that all spans belong to the history of the
objectives."""

Spans = Callable[[float], ReadableSpan]
RESOURCE = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "replica-1"})


@pytest.fixture
def span_at() -> Spans:
    def make(ago_s: float) -> ReadableSpan:
        now = time.monotonic()
        offset_ns = time.time_ns() - time.monotonic_ns() - int(ago_s * S)
        record = RequestRecord(
            received=now - 1.5,
            queued=now - 1.4,
            scheduled=now - 1.3,
            first_token=now - 1.0,
            last_token=now - 0.1,
            delivered=now,
            wall_offset_ns=offset_ns,
            outcome="stop",
            basis="http",
            streamed=True,
            output_tokens=10,
        )
        return span_of(record, RESOURCE)

    return make


def hung(chance: random.Random) -> list[tuple[str, bytes]]:
    """Return the messages about a request of 40 s, with their paths: two reports and the row."""
    now, ago_s = time.monotonic(), chance.choice([0.0, 700.0])
    record = RequestRecord(
        received=now - 40,
        delivered=now - 20,
        wall_offset_ns=time.time_ns() - time.monotonic_ns() - int(ago_s * S),
        outcome="stop",
        basis="http",
        streamed=True,
        trace_id=chance.getrandbits(128) or 1,
        span_id=chance.getrandbits(64) or 1,
    )
    messages = []
    for age_s in (20, 30):
        record.delivered = record.received + age_s
        body = in_flight_message_of([record], RESOURCE).SerializeToString()
        messages.append(("/v1/logs", body))
        record.reported_in_flight_s = float(age_s)
    record.delivered = now
    record.queued = record.scheduled = now - 30
    record.first_token = record.first_byte = record.last_token = now - 1
    messages.append(("/v1/traces", encode_spans([span_of(record, RESOURCE)]).SerializeToString()))
    chance.shuffle(messages)
    return messages[: chance.randint(1, 3)]


@pytest.mark.parametrize("stops", [2, pytest.param(20, marks=pytest.mark.real)])
@pytest.mark.timeout(600)
def test_counts_survive_any_stop(tmp_path: Path, span_at: Spans, stops: int) -> None:
    chance = random.Random(stops)
    url = f"sqlite:///{tmp_path}/t.db"
    lives = [(number, chance.uniform(0.0, 1.5)) for number in (SIGTERM, SIGKILL) * (stops // 2)]
    first_s = int(time.time()) - 3_900
    acknowledged = 0
    for life, (number, after_s) in enumerate(lives):
        with collecting(tmp_path, url) as running:
            endpoint = running.address("http")
            ending = threading.Event()
            taken: list[int] = []

            def send(worker: int, endpoint: str, ending: threading.Event, taken: list[int]) -> None:
                seeded = random.Random(worker)
                while not ending.is_set():
                    ago_s = [seeded.choice(AGES_S) for _ in range(SPANS)]
                    body = encode_spans([span_at(each) for each in ago_s]).SerializeToString()
                    for path, each in (("/v1/traces", body), *hung(seeded)):
                        kept = http_check.post(
                            endpoint + path, each, "application/x-protobuf", 10.0
                        ).ok
                        taken.append(SPANS * (kept and each is body))

            senders = [
                threading.Thread(target=send, args=(life * 2 + n, endpoint, ending, taken))
                for n in range(2)
            ]
            for each in senders:
                each.start()
            ending.wait(after_s)
            running.ends(number)
            ending.set()
            for each in senders:
                each.join(60)
            acknowledged += sum(taken)
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            stored = connection.scalar(select(func.count()).select_from(REQUESTS)) or 0
        assert stored >= acknowledged > 0
        assert oldest_seen_unix_ns(engine) is not None
        # `tailspan up` does the same at a restart. Each instant is evaluated once.
        now_s = int(time.time()) + 2 * EVALUATION_S
        objectives = load([OBJECTIVES]).objectives
        Evaluator(engine, objectives).evaluate(now_s)
        compare(engine, first_s, now_s)
    finally:
        engine.dispose()


def compare(engine: Engine, first_s: int, now_s: int) -> None:
    """Check that each objective's stored counts equal those of the rows."""
    definitions = counted_of(tuple(load([OBJECTIVES]).objectives))
    for goodput in definitions.values():
        kept = read_counted_range(engine, goodput.digest)
        assert kept is not None
        assert kept.until_unix_s > now_s - 600 - 2 * EVALUATION_S
        rows = count_requests(engine, goodput, first_s, kept.until_unix_s, EVALUATION_S)
        counts = read_counts(engine, goodput.digest, first_s, kept.until_unix_s)
        for name in NUMBERS:
            assert sum(getattr(each, name) for each in counts) == sum(
                getattr(each, name) for each in rows
            ), name
        assert counts == rows
        assert sum(each.good + each.bad for each in counts) > 0
