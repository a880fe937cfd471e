import shutil
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
from store.alerting.incidents import read_incidents, store_evaluation
from store.alerting.notifications import (
    read_notifications,
    remove_notifications,
    store_notifications,
)
from store.database import open_database
from store.writer import Writer
from telemetry.notifications import Delivery, Notification
from tests.alerts.conftest import default_objective, request_rows

START_S = 1_790_000_010
BEGAN_S = START_S + 3_600
FIRED_S = BEGAN_S + 1_500
PAGER = Channel(
    "pager", ReceiverType.PAGERDUTY, ("page",), Secret("http://127.0.0.1:9"), Secret("k")
)
TEAM = Channel("team", ReceiverType.SLACK, ("page", "ticket"), Secret("http://127.0.0.1:9"))
EXPLORER = "https://tailspan.example.org"


END_S = BEGAN_S + 4_200


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


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two databases.

    `begun.db` has one request every ten seconds; those of half an hour are bad. In `paged.db`, the
    page about them is in the outbox of both channels.
    """
    folder, row = tmp_path_factory.mktemp("stores"), request_rows()
    engine = open_database(f"sqlite:///{folder}/begun.db")
    rows = [
        row(received_unix_ns=at_s * 10**9, ttft_s=3.0 if BEGAN_S <= at_s < BEGAN_S + 1_800 else 0.1)
        for at_s in range(START_S, END_S, 10)
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    scene = Scene(engine, [default_objective()])
    assert scene.at(BEGAN_S) == []
    engine.dispose()
    shutil.copy(folder / "begun.db", folder / "paged.db")
    scene.engine = open_database(f"sqlite:///{folder}/paged.db")
    scene.at(FIRED_S)
    scene.engine.dispose()
    return folder


@pytest.fixture
def scene(tmp_path: Path, stores: Path) -> Iterator[Callable[[str], Scene]]:
    scenes = []

    def make(name: str) -> Scene:
        shutil.copy(stores / f"{name}.db", tmp_path)
        engine = open_database(f"sqlite:///{tmp_path}/{name}.db")
        scenes.append(Scene(engine, [default_objective()]))
        return scenes[-1]

    yield make
    for each in scenes:
        each.engine.dispose()


@pytest.fixture
def begun(scene: Callable[[str], Scene]) -> Scene:
    return scene("begun")


@pytest.fixture
def paged(scene: Callable[[str], Scene]) -> Scene:
    return scene("paged")


def test_a_page_is_sent_once_to_each_channel_for_pages(paged: Scene) -> None:
    # A burn of 15 min is too short for a ticket over a period of 30 days.
    sent = [("page", "firing", "pager"), ("page", "firing", "team")]
    assert paged.at(FIRED_S) == sent
    assert paged.at(FIRED_S + 15) == sent


def test_the_message_has_the_figures_of_when_it_fired(paged: Scene) -> None:
    sent = paged.message("firing")
    assert abs(sent.began_unix_s - BEGAN_S) <= 60
    assert sent.window_s == 3_600
    assert sent.events == 360
    assert sent.bad is not None
    assert sent.burn == pytest.approx(sent.bad / sent.events / 0.01)
    assert (sent.fired_by[0].long_s, sent.fired_by[0].short_s) == (3_600, 300)
    assert sent.fired_by[0].factor == pytest.approx(14.4)
    assert sent.budget_left is not None
    assert sent.budget_left < 1
    assert sent.exhausted_in_s is not None
    assert sent.likely_cause is None
    assert not sent.simulated
    assert sent.link == f"{EXPLORER}/?page=root-cause&incident=chat@{sent.fired_unix_s}"


def test_a_page_is_marked_as_simulated_only_if_its_incident_is(begun: Scene) -> None:
    at_s = BEGAN_S + 1_200
    Evaluator(begun.engine, begun.objectives).evaluate(at_s)
    (incident,) = read_incidents(begun.engine, "chat")
    store_evaluation(begun.engine, "chat", at_s, [replace(incident, simulated=True)])
    begun.notifier().enqueue(at_s)
    assert begun.message("firing").simulated


def test_an_end_is_sent_once_to_the_channels_that_got_the_start(paged: Scene) -> None:
    paged.deliver()
    last_s = END_S
    over = paged.at(last_s)
    assert ("page", "resolved", "pager") in over
    assert ("page", "resolved", "team") in over
    assert paged.at(last_s) == over
    sent = paged.message("resolved")
    assert sent.ended_unix_s is not None
    assert sent.peak_burn is not None
    assert sent.fired_by == ()
    assert sent.link == f"{EXPLORER}/?page=root-cause&incident=chat@{sent.fired_unix_s}"


def test_an_incident_that_was_never_sent_has_no_end_to_send(begun: Scene) -> None:
    assert begun.at(END_S) == []
    assert begun.rows == []


def test_without_a_sent_start_no_end_is_sent(paged: Scene) -> None:
    for row in paged.rows:
        dead = row.channel == "pager"
        store_notifications(
            paged.engine, [replace(row, state=Delivery.DEAD if dead else Delivery.DELIVERED)]
        )
    over = paged.at(END_S)
    assert ("page", "resolved", "pager") not in over
    assert ("page", "resolved", "team") in over


def test_a_new_channel_gets_the_open_incident(begun: Scene) -> None:
    begun.channels = [PAGER]
    begun.at(FIRED_S)
    begun.channels = [TEAM]
    begun.notifier().begin()
    begun.at(FIRED_S + 15)
    by_channel = {row.channel: row for row in begun.rows}
    assert by_channel["team"].state == Delivery.PENDING
    assert by_channel["pager"].state == Delivery.DEAD
    assert by_channel["pager"].problem == "the channel is no longer configured"


def test_the_repeated_alert_of_a_deleted_objective_ends(paged: Scene) -> None:
    for row in paged.rows:
        store_notifications(
            paged.engine, [replace(row, state=Delivery.DELIVERED, next_unix_s=FIRED_S + 60)]
        )
    paged.objectives = []
    paged.notifier().begin()
    assert [row.next_unix_s for row in paged.rows] == [None, None]


def test_a_waiting_message_has_the_figures_of_the_last_minute(paged: Scene) -> None:
    (row,) = [row for row in paged.rows if row.channel == "pager"]
    notifier = paged.notifier()
    assert notifier.newest(row) == row.message
    notifier.enqueue(FIRED_S)
    assert notifier.newest(row) == row.message
    Evaluator(paged.engine, paged.objectives).evaluate(FIRED_S + 100)
    notifier.enqueue(FIRED_S + 100)
    assert loads(notifier.newest(row)).as_of_unix_s > loads(row.message).as_of_unix_s
    assert notifier.newest(replace(row, transition="resolved")) == row.message
    paged.deliver()
    Evaluator(paged.engine, paged.objectives).evaluate(END_S)
    notifier.enqueue(END_S)
    assert notifier.newest(row) == row.message


def test_a_row_of_an_incompatible_version_blocks_nothing(paged: Scene) -> None:
    """After a rollback, the new process sends the message with its own numbers."""
    for row in paged.rows:
        store_notifications(paged.engine, [replace(row, message="{}")])
    (incident,) = read_incidents(paged.engine, "chat")
    notifier = paged.notifier()
    notifier.begin()
    notifier.enqueue(incident.last_unix_s)
    assert {loads(notifier.newest(row)).as_of_unix_s for row in paged.rows} == {
        incident.last_unix_s
    }


def test_an_outbox_is_deleted_with_its_simulation(paged: Scene) -> None:
    rows = paged.rows
    assert rows
    with paged.engine.begin() as connection:
        for row in rows:
            remove_notifications(connection, row.incident)
    assert paged.rows == []


def test_a_page_is_sent_first_and_its_cause_once_afterwards(begun: Scene) -> None:
    """Each channel gets the cause as an update of the page that it received."""
    begun.at(BEGAN_S + 1_200)
    (page,) = (row for row in begun.rows if row.channel == "pager")
    assert loads(page.message).likely_cause is None
    begun.deliver()
    begun.at(BEGAN_S + 1_215)
    assert all(row.next_unix_s is None for row in begun.rows)
    begun.cause = "tenant a sends more"
    begun.at(BEGAN_S + 1_230)
    waiting = [row for row in begun.rows if row.next_unix_s is not None]
    assert {row.channel for row in waiting} == {"pager", "team"}
    assert {loads(row.message).likely_cause for row in waiting} == {"tenant a sends more"}
    assert {str(row.state) for row in waiting} == {"delivered"}
    begun.deliver()
    begun.at(BEGAN_S + 1_245)
    assert all(row.next_unix_s is None for row in begun.rows)
