"""Sending on: everything arrives in order, or is counted as what became of it."""

from typing import Any

import pytest

from exporters.forwarding.forwarder import Answer, Forwarder
from exporters.forwarding.http_post import HttpPost
from rig.answering import Asked, Reply, answering

TAKEN = Answer(200)


class Backend:
    """Answers as told, then takes everything; notes what it took."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes, str]] = []
        self.taken: list[bytes] = []

    def __call__(self, path: str, body: bytes, content_type: str) -> Answer:
        """One attempt."""
        self.asked.append((path, body, content_type))
        answer = self.answers.pop(0) if self.answers else TAKEN
        if answer.status == 200:
            self.taken.append(body)
        return answer


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        """Monotonic seconds."""
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Let it pass."""
        self.pauses.append(seconds)
        self.now_s += seconds


def _run(backend: Backend, bodies: list[bytes], time: Time, **limits: Any) -> Forwarder:
    """Offer messages, then start; ends when all have become something."""
    forwarder = Forwarder(backend, clock=time, pause=time.pause, **limits)
    for body in bodies:
        forwarder.offer("/v1/traces", body, json=False)
    forwarder.start()
    forwarder._queue.put(None)
    forwarder._thread.join(30)
    return forwarder


def test_messages_arrive_as_they_came() -> None:
    """In order, on their path, under their kind."""
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


def test_a_backend_that_is_away_is_tried_again() -> None:
    """With growing pauses, or when it says; nothing overtakes."""
    backend = Backend(Answer(None), Answer(503), Answer(429, 7.0))
    time = Time()
    forwarder = _run(backend, [b"a", b"b"], time)
    assert backend.taken == [b"a", b"b"]
    assert time.pauses == [1.0, 2.0, 7.0]
    assert forwarder.counts()[0]["sent"] == 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500])
def test_a_refusal_is_final(status: int) -> None:
    """OTLP says which answers may be tried again; the next message has its turn."""
    backend = Backend(Answer(status))
    forwarder = _run(backend, [b"a", b"b"], Time())
    assert backend.taken == [b"b"]
    assert forwarder.counts()[0] == {"sent": 1, "refused": 1, "full": 0, "expired": 0, "failed": 0}


def test_what_grows_old_is_given_up() -> None:
    """And what waited behind it for as long is not tried at all."""
    backend, time = Backend(*[Answer(None)] * 50), Time()
    forwarder = _run(backend, [b"a", b"b"], time, patience_s=100)
    assert {body for _, body, _ in backend.asked} == {b"a"}
    assert forwarder.counts() == (
        {"sent": 0, "refused": 0, "full": 0, "expired": 2, "failed": 0},
        0,
    )


def test_a_full_queue_drops_and_counts() -> None:
    """Who offers does not wait."""
    forwarder = Forwarder(Backend(), queued_bytes=10)
    for _ in range(3):
        forwarder.offer("/v1/traces", b"12345", json=False)
    assert forwarder.counts() == (
        {"sent": 0, "refused": 0, "full": 1, "expired": 0, "failed": 0},
        10,
    )


def test_the_end_waits_for_nobody() -> None:
    """A backend that is away when we stop costs one try a message."""
    backend, time = Backend(*[Answer(None)] * 9), Time()
    forwarder = Forwarder(backend, clock=time, pause=time.pause)
    forwarder.offer("/v1/traces", b"a", json=False)
    forwarder.close(30)
    forwarder.start()
    forwarder._thread.join(30)
    assert len(backend.asked) == 1
    assert forwarder.counts()[0]["expired"] == 1


def test_what_became_of_messages_is_told() -> None:
    """On `/metrics`, from the start at 0."""
    told = {
        (sample.name, sample.labels.get("result")): sample.value
        for metric in Forwarder(Backend()).collect()
        for sample in metric.samples
    }
    assert told["tailspan_forward_messages_total", "expired"] == 0
    assert told["tailspan_forward_queued_bytes", None] == 0


def test_over_http() -> None:
    """With our headers, below the path of the backend; a redirect is not followed."""
    statuses = [200, 307]

    def answer(_: Asked) -> Reply:
        return Reply(statuses.pop(0), headers={"Retry-After": "3", "Location": "/elsewhere"})

    with answering(answer) as backend:
        post = HttpPost(f"{backend.url}/otlp/", {"authorization": "Bearer x"})
        assert post("/v1/traces", b"body", "application/x-protobuf") == Answer(200, 3.0)
        assert post("/v1/traces", b"body", "application/x-protobuf").status == 307
    first, _ = backend.asked
    assert (first.path, first.body) == ("/otlp/v1/traces", b"body")
    assert first.headers["authorization"] == "Bearer x"


def test_nobody_listening_is_no_error() -> None:
    """But no answer: to be tried again."""
    assert HttpPost("http://127.0.0.1:1", {})("/v1/traces", b"", "x") == Answer(None)


def test_a_defect_costs_one_message_and_is_counted() -> None:
    """The thread goes on with the next."""
    backend, time = Backend(), Time()
    honest = backend.__call__

    class Spoilt(Backend):
        def __call__(self, path: str, body: bytes, content_type: str) -> Answer:
            if body == b"bad":
                raise KeyError(body)
            return honest(path, body, content_type)

    forwarder = _run(Spoilt(), [b"a", b"bad", b"b"], time)
    assert backend.taken == [b"a", b"b"]
    counts, held_bytes = forwarder.counts()
    assert (counts["sent"], counts["failed"], held_bytes) == (2, 1, 0)
    assert forwarder.task.failures == 1
    assert forwarder.task.problem is None
