from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alerts.evaluation.evaluator import Evaluator
from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.message import IncidentMessage, loads
from alerts.notify.notifier import Notifier
from alerts.objectives import Objective
from alerts.secrets import Secret
from store.alerting.notifications import (
    Delivery,
    Notification,
    read_notifications,
    remove_notifications,
    store_notifications,
)
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline

START_S = 1_790_000_010
BEGAN_S = START_S + 7_200
PAGER = Channel(
    "pager", ReceiverType.PAGERDUTY, ("page",), Secret("http://127.0.0.1:9"), Secret("k")
)
TEAM = Channel("team", ReceiverType.SLACK, ("page", "ticket"), Secret("http://127.0.0.1:9"))
EXPLORER = "https://tailspan.example.org"


@pytest.fixture
def engine(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> Iterator[Engine]:
    """Return a store with four hours of requests, one every five seconds.

    All requests of half an hour are bad.
    """
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    rows = [
        request_row(
            received_unix_ns=at_s * 10**9, ttft_s=3.0 if BEGAN_S <= at_s < BEGAN_S + 1_800 else 0.1
        )
        for at_s in range(START_S, START_S + 14_400, 5)
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    yield engine
    engine.dispose()


class Scene:
    def __init__(self, engine: Engine, objectives: list[Objective]) -> None:
        self.engine = engine
        self.objectives = objectives
        self.channels = [PAGER, TEAM]
        self.cause: str | None = None

    def notifier(self) -> Notifier:
        return Notifier(
            self.engine,
            self.objectives,
            self.channels,
            explorer_url=lambda: EXPLORER,
            simulated=lambda: True,
            likely_cause=lambda *_: self.cause,
        )

    def at(self, now_s: int) -> list[tuple[str, str, str]]:
        """Evaluate, enqueue the messages, and return the outbox."""
        Evaluator(self.engine, self.objectives).evaluate(now_s)
        self.notifier().enqueue(now_s)
        return sorted((row.severity, row.transition, row.channel) for row in self.rows)

    def deliver(self) -> None:
        for row in self.rows:
            store_notifications(
                self.engine, [replace(row, state=Delivery.DELIVERED, next_unix_s=None)]
            )

    @property
    def rows(self) -> list[Notification]:
        return read_notifications(self.engine, "chat")

    def message(self, transition: str, channel: str = "pager") -> IncidentMessage:
        (row,) = [r for r in self.rows if (r.transition, r.channel) == (transition, channel)]
        return loads(row.message)


@pytest.fixture
def scene(engine: Engine, objective: Callable[..., Objective]) -> Scene:
    return Scene(engine, [objective()])


def test_a_page_is_sent_once_to_each_channel_for_pages(scene: Scene) -> None:
    assert scene.at(BEGAN_S) == []
    paged = scene.at(BEGAN_S + 1_500)
    assert paged == [("page", "firing", "pager"), ("page", "firing", "team")]
    assert scene.at(BEGAN_S + 1_515) == paged
    # A burn of 15 min is too short for a ticket over a period of 30 days.
    assert all(severity != "ticket" for severity, _, _ in paged)


def test_the_message_has_the_figures_of_when_it_fired(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    sent = scene.message("firing")
    assert abs(sent.began_unix_s - BEGAN_S) <= 60
    assert sent.window_s == 3_600
    assert sent.events == 720
    assert sent.bad is not None
    assert sent.burn == pytest.approx(sent.bad / sent.events / 0.01)
    assert (sent.fired_by[0].long_s, sent.fired_by[0].short_s) == (3_600, 300)
    assert sent.fired_by[0].factor == pytest.approx(14.4)
    assert sent.budget_left is not None
    assert sent.budget_left < 1
    assert sent.exhausted_in_s is not None
    assert sent.likely_cause is None
    assert sent.simulated
    assert sent.link == f"{EXPLORER}/?page=root-cause&incident=chat@{sent.fired_unix_s}"


def test_an_end_is_sent_once_to_the_channels_that_got_the_start(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    scene.deliver()
    last_s = START_S + 14_400
    over = scene.at(last_s)
    assert ("page", "resolved", "pager") in over
    assert ("page", "resolved", "team") in over
    assert scene.at(last_s) == over
    sent = scene.message("resolved")
    assert sent.ended_unix_s is not None
    assert sent.peak_burn is not None
    assert sent.fired_by == ()
    assert sent.link == f"{EXPLORER}/?page=root-cause&incident=chat@{sent.fired_unix_s}"


def test_an_incident_that_was_never_sent_has_no_end_to_send(scene: Scene) -> None:
    scene.at(BEGAN_S)
    assert scene.at(START_S + 14_400) == []
    assert scene.rows == []


def test_without_a_sent_start_no_end_is_sent(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    for row in scene.rows:
        dead = row.channel == "pager"
        store_notifications(
            scene.engine, [replace(row, state=Delivery.DEAD if dead else Delivery.DELIVERED)]
        )
    over = scene.at(START_S + 14_400)
    assert ("page", "resolved", "pager") not in over
    assert ("page", "resolved", "team") in over


def test_a_new_channel_gets_the_open_incident(scene: Scene) -> None:
    scene.channels = [PAGER]
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    scene.channels = [TEAM]
    scene.notifier().begin()
    scene.at(BEGAN_S + 1_515)
    by_channel = {row.channel: row for row in scene.rows}
    assert by_channel["team"].state == Delivery.PENDING
    assert by_channel["pager"].state == Delivery.DEAD
    assert by_channel["pager"].problem == "the channel is no longer configured"


def test_the_repeated_alert_of_a_deleted_objective_ends(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    for row in scene.rows:
        store_notifications(
            scene.engine, [replace(row, state=Delivery.DELIVERED, next_unix_s=BEGAN_S + 1_560)]
        )
    scene.objectives = []
    scene.notifier().begin()
    assert [row.next_unix_s for row in scene.rows] == [None, None]


def test_a_waiting_message_has_the_figures_of_the_last_minute(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    (row,) = [row for row in scene.rows if row.channel == "pager"]
    notifier = scene.notifier()
    assert notifier.newest(row) == row.message
    notifier.enqueue(BEGAN_S + 1_500)
    assert notifier.newest(row) == row.message
    Evaluator(scene.engine, scene.objectives).evaluate(BEGAN_S + 1_600)
    notifier.enqueue(BEGAN_S + 1_600)
    assert loads(notifier.newest(row)).as_of_unix_s > loads(row.message).as_of_unix_s
    assert notifier.newest(replace(row, transition="resolved")) == row.message
    scene.deliver()
    Evaluator(scene.engine, scene.objectives).evaluate(START_S + 14_400)
    notifier.enqueue(START_S + 14_400)
    assert notifier.newest(row) == row.message


def test_an_outbox_is_deleted_with_its_simulation(scene: Scene) -> None:
    scene.at(BEGAN_S)
    scene.at(BEGAN_S + 1_500)
    rows = scene.rows
    assert rows
    with scene.engine.begin() as connection:
        for row in rows:
            remove_notifications(connection, row.incident)
    assert scene.rows == []


def test_a_page_is_sent_first_and_its_cause_once_afterwards(scene: Scene) -> None:
    """Each channel gets the cause as an update of the page that it received."""
    scene.at(BEGAN_S + 1_200)
    (page,) = (row for row in scene.rows if row.channel == "pager")
    assert loads(page.message).likely_cause is None
    scene.deliver()
    scene.at(BEGAN_S + 1_215)
    assert all(row.next_unix_s is None for row in scene.rows)
    scene.cause = "tenant a sends more"
    scene.at(BEGAN_S + 1_230)
    waiting = [row for row in scene.rows if row.next_unix_s is not None]
    assert {row.channel for row in waiting} == {"pager", "team"}
    assert {loads(row.message).likely_cause for row in waiting} == {"tenant a sends more"}
    assert {str(row.state) for row in waiting} == {"delivered"}
    scene.deliver()
    scene.at(BEGAN_S + 1_245)
    assert all(row.next_unix_s is None for row in scene.rows)
