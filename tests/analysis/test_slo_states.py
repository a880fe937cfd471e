from dataclasses import replace

from sqlalchemy import Engine

from alerts.notify.example import example
from alerts.notify.message import Transition, dumps
from analysis.slo_states import slo_states
from store.alerting.incidents import store_evaluation
from store.alerting.notifications import store_notifications
from store.writer import Writer
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification
from telemetry.window import Window
from tests.alerts.conftest import START_NS, default_objective, request_rows

START_S = START_NS // 10**9


def test_a_notification_of_an_incompatible_version_hides_no_other_cause(engine: Engine) -> None:
    objective, row = default_objective(), request_rows()
    with Writer(engine) as writer:
        writer.submit([row(received_unix_ns=START_NS)], []).result(10)
    page = IncidentRow("chat", "page", START_S, START_S, START_S, None, START_S, "20", None)
    store_evaluation(engine, "chat", START_S, [page])
    example_of_page = example("page", Transition.FIRING, START_S, None)
    message = replace(example_of_page, likely_cause="tenant a sends more")
    readable = Notification("chat", "page", START_S, "firing", "pager", dumps(message), START_S)
    other = Notification("chat", "page", START_S, "firing", "team", "{}", START_S)
    store_notifications(engine, [readable, other])
    window = Window(START_NS - 60 * 10**9, START_NS + 60 * 10**9)
    (state,) = slo_states(engine, [objective], window, START_S + 60)
    assert [each.cause for each in state.incidents] == ["tenant a sends more"]
