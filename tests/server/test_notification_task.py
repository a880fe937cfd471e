import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from alerts.notify import http_post
from alerts.notify.channel_sender import Attempt, DeliveryResult
from alerts.notify.channels import Channel, ChannelPost, ReceiverType
from alerts.notify.http_post import ChannelResponse
from alerts.openslo.reader import OBJECTIVES, load
from alerts.secrets import Secret
from server import notification_task
from server.notification_task import NotificationTask, sentence
from store.alerting.incidents import store_evaluation
from store.alerting.notifications import read_notifications
from store.database import open_database
from store.leases import NOTIFICATION, Leases, LeaseTerm
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification
from telemetry.requests import RequestTimeline

START_S = 1_763_634_000
PATIENCE_S = 20.0


@pytest.fixture
def engine(
    url: str, fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> Iterator[Engine]:
    fill(request_row())
    engine = open_database(url)
    page = IncidentRow("chat", "page", START_S, START_S, START_S, None, START_S, "20", None)
    store_evaluation(engine, "chat", START_S, [page])
    yield engine
    engine.dispose()


def channel(name: str) -> Channel:
    return Channel(name, ReceiverType.WEBHOOK, ("page",), Secret(f"http://127.0.0.1:9/{name}"))


class Others:
    """Replaces delivery: channel `slow` responds when the test allows it, all others at once."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = threading.Event()

    def sender(self, of: Channel) -> Callable[[ChannelPost], ChannelResponse]:
        def send(post: ChannelPost) -> ChannelResponse:
            if of.name == "slow":
                self.asked.set()
                self.let.wait(PATIENCE_S)
            return ChannelResponse(200, "")

        return send


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[Others]:
    made = Others()
    monkeypatch.setattr(notification_task, "ChannelPoster", made.sender)
    yield made
    made.let.set()


def begin(engine: Engine, printed: list[str], leases: Leases | None = None) -> NotificationTask:
    return NotificationTask(
        engine,
        load([OBJECTIVES]).objectives,
        [channel("slow"), channel("quick")],
        explorer_url=lambda: None,
        print_line=lambda text, wrong: printed.append(text),
        leases=leases or Leases(engine),
    )


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_a_slow_receiver_delays_no_other(engine: Engine, others: Others) -> None:
    printed: list[str] = []
    running = begin(engine, printed)
    running.start()
    running.evaluated()
    assert others.asked.wait(PATIENCE_S)
    assert soon(lambda: printed == ["notified quick: the page of objective chat"])
    running.evaluated()
    assert running.counts()["quick", "delivered"] == 1
    assert running.counts()["slow", "delivered"] == 0
    assert set(running.oldest_pending_s()) == {"quick", "slow"}
    others.let.set()
    assert soon(lambda: running.counts()["slow", "delivered"] == 1)
    running.stop()
    assert {row.state for row in read_notifications(engine, "chat")} == {"delivered"}


def test_nothing_is_sent_before_the_first_evaluation(engine: Engine, others: Others) -> None:
    """An incident that was open at the last stop may have ended."""
    printed: list[str] = []
    running = begin(engine, printed)
    running.start()
    running.stop()
    assert printed == []
    assert read_notifications(engine, "chat") == []
    assert set(running.counts().values()) == {0}


def test_a_defect_ends_no_thread(
    engine: Engine,
    others: Others,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[str] = []
    with monkeypatch.context() as broken:
        broken.setattr("alerts.notify.notifier.status_at", lambda *_: 1 / 0)
        running = begin(engine, printed)
        running.start()
        running.evaluated()
        assert soon(lambda: "ZeroDivisionError" in caplog.text)
    running.evaluated()
    assert soon(lambda: "notified quick: the page of objective chat" in printed)
    others.let.set()
    running.stop()


def test_an_attempt_in_a_line() -> None:
    row = Notification("chat", "page", START_S, "firing", "quick", "{}", START_S, failures=1)
    failed = Attempt(row, DeliveryResult.FAILED, ChannelResponse(503, "busy"), repeat=False)
    of = channel("quick")
    assert sentence(of, failed) == (
        "could not notify quick: the page of objective chat (status 503: busy); trying again"
    )
    assert sentence(of, replace(failed, row=replace(row, failures=2))) is None
    dead = replace(failed, result=DeliveryResult.DEAD, row=replace(row, transition="resolved"))
    assert sentence(of, dead) == (
        "gave up notifying quick: the end of the page of objective chat (status 503: busy);"
        " see tailspan slo status"
    )
    assert sentence(of, replace(failed, result=DeliveryResult.DELIVERED, repeat=True)) is None


def test_an_attempt_has_a_shorter_time_limit_than_the_evaluation_interval() -> None:
    """An attempt that hangs ends before the next evaluation is due."""
    assert http_post.WHOLE_S <= 15


def test_a_collector_without_the_lease_sends_nothing_until_it_takes_it(
    engine: Engine, others: Others
) -> None:
    class Waiting(Leases):
        held: LeaseTerm | None = None

        def term(self, name: str) -> LeaseTerm | None:
            return self.held

    printed: list[str] = []
    leases = Waiting(engine)
    running = begin(engine, printed, leases)
    running.start()
    for _ in range(3):
        running.evaluated()
        time.sleep(0.05)
    assert printed == []
    assert read_notifications(engine, "chat") == []
    leases.held = LeaseTerm(NOTIFICATION, 4)
    running.evaluated()
    assert soon(lambda: printed == ["notified quick: the page of objective chat"])
    assert soon(lambda: {row.claimed_term for row in read_notifications(engine, "chat")} == {4})
    running.stop()
