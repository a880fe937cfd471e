import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from collector.server import Collector
from collector.testing import MemorySink, running
from rig.load import Call, Timed, mixed, send_all
from rig.ports import free_port
from telemetry.requests import RequestTimeline

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

KEY = "a-key-for-this-test"
KNOWN = {"authorization": f"Bearer {KEY}"}
PATIENCE_S = 60


class Receiver:
    """A collector that starts late, and can be stopped and restarted on the same port."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.port = free_port()
        self._running = ExitStack()

    def start(self) -> None:
        collector = Collector(self.sink, grpc_port=self.port, http_port=0)
        self._running.enter_context(running(collector))

    def stop(self) -> None:
        self._running.close()

    def rows(self, wanted: Iterable[Timed]) -> list[RequestTimeline]:
        """Return the rows of these calls when all are stored, or after a timeout."""
        traces = {timed.trace_id for timed in wanted}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            rows = [row for row in self.sink.requests if row.trace_id in traces]
            if {row.trace_id for row in rows} == traces or time.monotonic() > deadline:
                return rows
            time.sleep(0.2)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


def well_behaved(port: int, count: int, seed: int, during: Callable[[], None]) -> list[Timed]:
    calls = [
        Call(
            call.chat, call.stream, call.prompt, call.max_tokens, headers={**KNOWN, **call.headers}
        )
        for call in mixed(count, seed=seed)
    ]
    with ThreadPoolExecutor(1) as pool:
        happening = pool.submit(during)
        seen = send_all(port, calls, concurrency=4)
        happening.result()
    assert all(timed.status == 200 for timed in seen)
    return seen


@pytest.fixture(scope="module")
def unheard(start_module_vllm: Callable[..., Any], receiver: Receiver) -> Any:
    """Return a vLLM with keys, a malformed time limit, no replica name and no collector."""
    return start_module_vllm(
        *("--api-key", KEY),
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{receiver.port}",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_TIMEOUT="10s",
        OTEL_BSP_SCHEDULE_DELAY="1000",
        OTEL_RESOURCE_ATTRIBUTES="cloud.region=here",
    )


@pytest.fixture(scope="module")
def server(unheard: Any, receiver: Receiver) -> Any:
    receiver.start()
    well_behaved(unheard.port, 80, 1, lambda: None)  # the step model needs these requests
    until(lambda: "is back" in unheard.printed)
    return unheard


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition or a timeout; the caller asserts the condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)


def post(port: int, path: str, body: Any, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, text, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def assert_complete(rows: list[RequestTimeline], seen: list[Timed]) -> None:
    assert sorted(row.trace_id for row in rows) == sorted(timed.trace_id for timed in seen)
    assert [row for row in rows if row.prefill_own_s is None] == []
    assert {row.outcome for row in rows} <= {"stop", "length"}


def test_without_a_collector_serving_continues_and_one_line_is_logged(unheard: Any) -> None:
    well_behaved(unheard.port, 40, 32, lambda: None)
    time.sleep(12)
    assert unheard.printed.count("tailspan: no collector") == 1
    assert "Failed to export" not in unheard.printed


def test_a_malformed_variable_is_named_and_the_replica_has_its_port(
    server: Any, receiver: Receiver
) -> None:
    until(lambda: receiver.sink.samples)
    assert {sample.replica.rpartition(":")[2] for sample in receiver.sink.samples} == {
        str(server.port)
    }
    assert server.printed.count("OTEL_EXPORTER_OTLP_TIMEOUT='10s' is not valid") == 1


def test_ids_of_any_size_lose_no_row(server: Any, receiver: Receiver) -> None:
    ids = [f"{number:03d}" + "x" * 60_000 for number in range(100)]
    statuses: list[int] = []

    def attack() -> None:
        def send(request_id: str, **headers: str) -> None:
            body = {"model": "tiny", "prompt": "a", "max_tokens": 1, "request_id": request_id}
            statuses.append(post(server.port, "/v1/completions", body, {**KNOWN, **headers}))

        send("y" * 1_100_000)
        for request_id in ids:
            send(request_id)
        send("z", tracestate="t" * 30_000, **{"x-tenant-id": "u" * 30_000})
        prompts = {"model": "tiny", "prompt": ["a"] * 200, "max_tokens": 1}
        statuses.append(post(server.port, "/v1/completions", prompts, KNOWN))

    seen = well_behaved(server.port, 60, 41, attack)
    assert set(statuses) == {200}
    assert_complete(receiver.rows(seen), seen)
    deadline = time.monotonic() + PATIENCE_S
    long: dict[str, RequestTimeline] = {}
    while len(long) < 101 and time.monotonic() < deadline:
        time.sleep(0.2)
        long = {
            row.request_id: row
            for row in receiver.sink.requests
            if row.request_id is not None and len(row.request_id) > 100
        }
    assert len(long) == 101  # each request has its own row
    assert max(map(len, long)) <= 256
    assert all(row.prefill_own_s is not None for row in long.values())
    assert max(len(row.tenant or "") for row in receiver.sink.requests) == 256
    assert receiver.sink.samples[-1].spans_dropped_total == 0


def test_a_flood_without_a_key_has_no_tenant_and_few_rows(server: Any, receiver: Receiver) -> None:
    before = len(receiver.sink.requests)
    begun = time.monotonic()

    def attack() -> None:
        for number in range(400):
            headers = {"x-tenant-id": f"stolen-{number}", "authorization": "Bearer wrong"}
            assert post(server.port, "/v1/completions", b"{}", headers) == 401

    seen = well_behaved(server.port, 60, 42, attack)
    assert_complete(receiver.rows(seen), seen)
    time.sleep(3)  # unexpected rows would arrive within this time
    new = receiver.sink.requests[before:]
    unknown = [row for row in new if row.http_status == 401]
    assert 1 <= len(unknown) <= 60 + 1 + (time.monotonic() - begun)
    assert {row.tenant for row in unknown} == {None}
    assert not any((row.tenant or "").startswith("stolen") for row in new)
    assert receiver.sink.samples[-1].spans_dropped_total == 0


def test_an_outage_loses_no_row_and_no_part(server: Any, receiver: Receiver) -> None:
    before = {words: server.printed.count(words) for words in ("tailspan: no collector", "is back")}
    seen = well_behaved(server.port, 160, 43, receiver.stop)
    # On a fast machine, the requests end before the instrumentation has dropped its first batch.
    until(lambda: server.printed.count("tailspan: no collector") > before["tailspan: no collector"])
    assert server.printed.count("tailspan: no collector") == before["tailspan: no collector"] + 1
    receiver.start()
    assert_complete(receiver.rows(seen), seen)
    until(lambda: server.printed.count("is back") > before["is back"])
    assert server.printed.count("is back") == before["is back"] + 1
    assert receiver.sink.samples[-1].accounts_dropped_total == 0
