from typing import Any

import pytest
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict, http_failure

from exporters.forwarding.forwarder import Forwarder
from exporters.forwarding.http_post import HttpPost
from rig.http_servers import HttpReply, ReceivedRequest, running_http_server

ACCEPTED = ExportResponse(ExportVerdict.ACCEPTED)
UNREACHABLE = ExportResponse(ExportVerdict.UNREACHABLE)


class Backend:
    def __init__(self, *answers: ExportResponse) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes, str]] = []
        self.accepted: list[bytes] = []

    def __call__(self, path: str, body: bytes, content_type: str) -> ExportResponse:
        self.asked.append((path, body, content_type))
        answer = self.answers.pop(0) if self.answers else ACCEPTED
        if answer.verdict is ExportVerdict.ACCEPTED:
            self.accepted.append(body)
        return answer


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def _run(backend: Backend, bodies: list[bytes], time: Time, **limits: Any) -> Forwarder:
    """Offer messages to a forwarder, wait until each message has a result, and return the
    forwarder."""
    backoff = Backoff(lambda: 1.0, longest_requested_s=30.0)
    forwarder = Forwarder(backend, backoff=backoff, clock=time, pause=time.pause, **limits)
    for body in bodies:
        forwarder.offer("/v1/traces", body, json=False)
    forwarder.start()
    forwarder._queue.put(None)
    forwarder._thread.join(30)
    return forwarder


def test_messages_are_forwarded_unchanged() -> None:
    backend, time = Backend(), Time()
    forwarder = Forwarder(backend, clock=time, pause=time.pause)
    forwarder.offer("/v1/traces", b"a", json=False)
    forwarder.offer("/v1/metrics", b"{}", json=True)
    forwarder.start()
    forwarder.close(30)
    assert backend.asked == [
        ("/v1/traces", b"a", "application/x-protobuf"),
        ("/v1/metrics", b"{}", "application/json"),
    ]
    assert forwarder.counts() == (
        {"sent": 2, "refused": 0, "full": 0, "expired": 0, "failed": 0},
        0,
    )


def test_a_backend_that_does_not_answer_is_retried() -> None:
    backend = Backend(UNREACHABLE, http_failure(503, {}), http_failure(429, {"retry-after": "7"}))
    time = Time()
    forwarder = _run(backend, [b"a", b"b"], time)
    assert backend.accepted == [b"a", b"b"]
    assert time.pauses == [1.0, 2.0, 7.0]
    assert forwarder.counts()[0]["sent"] == 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500])
def test_a_refusal_is_final(status: int) -> None:
    backend = Backend(http_failure(status, {}))
    forwarder = _run(backend, [b"a", b"b"], Time())
    assert backend.accepted == [b"b"]
    assert forwarder.counts()[0] == {"sent": 1, "refused": 1, "full": 0, "expired": 0, "failed": 0}


def test_an_old_message_is_dropped() -> None:
    backend, time = Backend(*[UNREACHABLE] * 50), Time()
    forwarder = _run(backend, [b"a", b"b"], time, patience_s=100)
    assert {body for _, body, _ in backend.asked} == {b"a"}
    assert forwarder.counts() == (
        {"sent": 0, "refused": 0, "full": 0, "expired": 2, "failed": 0},
        0,
    )


def test_a_full_queue_drops_and_counts() -> None:
    forwarder = Forwarder(Backend(), queued_bytes=10)
    for _ in range(3):
        forwarder.offer("/v1/traces", b"12345", json=False)
    assert forwarder.counts() == (
        {"sent": 0, "refused": 0, "full": 1, "expired": 0, "failed": 0},
        10,
    )


def test_closing_sends_each_message_once() -> None:
    backend, time = Backend(*[UNREACHABLE] * 9), Time()
    forwarder = Forwarder(backend, clock=time, pause=time.pause)
    forwarder.offer("/v1/traces", b"a", json=False)
    forwarder.close(30)
    forwarder.start()
    forwarder._thread.join(30)
    assert len(backend.asked) == 1
    assert forwarder.counts()[0]["expired"] == 1


def test_metrics_count_messages_by_result() -> None:
    values = {
        (sample.name, sample.labels.get("result")): sample.value
        for metric in Forwarder(Backend()).collect()
        for sample in metric.samples
    }
    assert values["tailspan_forward_messages_total", "expired"] == 0
    assert values["tailspan_forward_queued_bytes", None] == 0


def test_over_http() -> None:
    statuses = [200, 307, 429]

    def answer(_: ReceivedRequest) -> HttpReply:
        return HttpReply(statuses.pop(0), headers={"Retry-After": "3", "Location": "/elsewhere"})

    with running_http_server(answer) as backend:
        post = HttpPost(f"{backend.url}/otlp/", {"authorization": "Bearer x"})
        assert post("/v1/traces", b"body", "application/x-protobuf") == ACCEPTED
        assert not post("/v1/traces", b"body", "application/x-protobuf").retryable
        busy = post("/v1/traces", b"body", "application/x-protobuf")
        assert (busy.verdict, busy.wait_s) == (ExportVerdict.BUSY, 3.0)
    first = backend.received[0]
    assert (first.path, first.body) == ("/otlp/v1/traces", b"body")
    assert first.headers["authorization"] == "Bearer x"


def test_a_refused_connection_is_retryable() -> None:
    assert HttpPost("http://127.0.0.1:1", {})("/v1/traces", b"", "x").retryable


def test_a_defect_fails_one_message_and_is_counted() -> None:
    backend, time = Backend(), Time()
    post = backend.__call__

    class Defective(Backend):
        def __call__(self, path: str, body: bytes, content_type: str) -> ExportResponse:
            if body == b"bad":
                raise KeyError(body)
            return post(path, body, content_type)

    forwarder = _run(Defective(), [b"a", b"bad", b"b"], time)
    assert backend.accepted == [b"a", b"b"]
    counts, queued_bytes = forwarder.counts()
    assert (counts["sent"], counts["failed"], queued_bytes) == (2, 1, 0)
    assert forwarder.task.failures == 1
    assert forwarder.task.problem is None
