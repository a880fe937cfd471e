import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from alerts import groups
from alerts.burnrate import EventCounts
from alerts.evaluation.counting import step_counts
from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.group_slots import GroupSlots, groups_of
from alerts.evaluation.request_verdicts import selects
from alerts.groups import OTHER, Group
from alerts.notify import alertmanager
from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.message import loads
from alerts.notify.notifier import Notifier
from alerts.objectives import Goodput
from alerts.prometheus.generate import tailspan_rules
from alerts.secrets import Secret
from store.alerting.incidents import read_incidents, store_evaluation
from store.alerting.notifications import read_notifications
from store.alerting.slo_groups import groups_with_slots
from store.writer import Writer
from telemetry.incidents import IncidentRow
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from tests.alerts.evaluation.group_counts import recounted, stored
from tests.alerts.grouped import own

S = 10**9
HOUR_S = 3600
START_S = 1_790_000_010
BEGAN_S = START_S + HOUR_S
BAD_S = 1200
END_S = START_S + 2 * HOUR_S

Row = Callable[..., RequestTimeline]


def store(engine: Engine, rows: Sequence[RequestTimeline]) -> None:
    with Writer(engine) as writer:
        writer.submit(rows, []).result(30)


def day(row: Row, **tenants: int) -> list[RequestTimeline]:
    """Return two hours of each tenant's requests, which are the given seconds apart.

    The requests of acme are slow for twenty minutes.
    """
    return [
        row(
            received_unix_ns=at_s * S,
            tenant=tenant,
            ttft_s=3.0 if tenant == "acme" and BEGAN_S <= at_s < BEGAN_S + BAD_S else 0.1,
        )
        for tenant, every_s in tenants.items()
        for at_s in range(START_S, END_S, every_s)
    ]


def test_only_the_burning_group_has_an_incident(engine: Engine, request_row: Row) -> None:
    store(engine, day(request_row, acme=10, globex=10))
    evaluator = Evaluator(engine, [own()])
    for at_s in range(BEGAN_S - 600, BEGAN_S + 2700, 300):
        evaluator.evaluate(at_s)
    assert read_incidents(engine, 'chat{tenant="globex"}') == []
    assert read_incidents(engine, f'chat{{tenant="{OTHER}"}}') == []
    pages = [row for row in read_incidents(engine, 'chat{tenant="acme"}') if row.severity == "page"]
    assert len(pages) == 1
    assert BEGAN_S - 60 <= pages[0].began_unix_s <= BEGAN_S + 120
    assert pages[0].ended_unix_s is not None


def test_kept_counts_agree_with_a_recount_and_sum_to_all(engine: Engine, request_row: Row) -> None:
    rows = day(request_row, acme=10, globex=14)
    rows += [request_row(received_unix_ns=at_s * S) for at_s in range(START_S, END_S, 60)]
    store(engine, rows)
    Evaluator(engine, [own()]).evaluate(END_S + 30)
    found = stored(engine, own(), 0, END_S + 30)
    assert found == recounted(engine, own(), 0, END_S + 30)
    assert set(found) == {OTHER, "", "acme", "globex"}
    assert sum(each.events for each in found.values()) == len(rows)
    goodput = own().indicator
    assert isinstance(goodput, Goodput)
    whole = step_counts(engine, goodput, START_S - HOUR_S, END_S + 30, HOUR_S)
    assert sum(each.counts.events for each in whole) == len(rows)


def test_a_later_group_is_in_other_until_it_has_a_slot(engine: Engine, request_row: Row) -> None:
    objective = own()
    first = day(request_row, acme=10)
    store(engine, first)
    evaluator = Evaluator(engine, [objective])
    evaluator.evaluate(END_S)
    late = [
        request_row(received_unix_ns=at_s * S, tenant="late")
        for at_s in range(END_S, END_S + HOUR_S, 10)
    ]
    store(engine, late)
    for at_s in range(END_S + 600, END_S + HOUR_S + 60, 600):
        evaluator.evaluate(at_s)
    at_s = END_S + HOUR_S + 60
    found = stored(engine, objective, 0, at_s)
    assert set(found) == {OTHER, "acme", "late"}
    assert found["late"].events > 200
    assert sum(each.events for each in found.values()) == len(first) + len(late)


@pytest.fixture
def few_slots(monkeypatch: pytest.MonkeyPatch) -> int:
    """Set a low limit on the number of groups, because each group is evaluated. Return the
    limit."""
    limit = 3
    monkeypatch.setattr("alerts.evaluation.evaluator.GroupSlots", partial(GroupSlots, slots=limit))
    return limit


def test_invented_tenants_get_only_the_free_slots(
    engine: Engine, request_row: Row, few_slots: int
) -> None:
    """Only a few of the names are stored, but every request is counted."""
    rows = day(request_row, acme=10)
    rows += [
        request_row(received_unix_ns=(START_S + at) * S, tenant=f"x{at}", ttft_s=9.0)
        for at in range(0, END_S - START_S, 6)
    ]
    store(engine, rows)
    evaluator = Evaluator(engine, [own()])
    for at_s in range(START_S + 60, END_S + 1200, 900):
        evaluator.evaluate(at_s)
    goodput = own().indicator
    assert isinstance(goodput, Goodput)
    separate = set(map(groups.read_key, groups_with_slots(engine, goodput.digest)))
    assert len(separate) == few_slots + 1
    assert {("acme",), (OTHER,)} <= separate
    found = stored(engine, own(), 0, END_S + 1200)
    assert sum(each.events for each in found.values()) == len(rows)
    assert found["acme"] == EventCounts(BAD_S // 10, (END_S - START_S) // 10)


def test_a_group_that_loses_its_slot_loses_no_request(
    engine: Engine, request_row: Row, few_slots: int
) -> None:
    rows = [
        request_row(received_unix_ns=(START_S + at) * S, tenant=f"x{at:03}") for at in range(60)
    ]
    store(engine, rows)
    evaluator = Evaluator(engine, [own()])
    evaluator.evaluate(START_S + 120)
    assert "x000" in stored(engine, own(), 0, START_S + 120)
    until_s = START_S + 4 * HOUR_S
    lasting = [
        request_row(received_unix_ns=at_s * S, tenant="acme")
        for at_s in range(START_S + HOUR_S, until_s, 60)
    ]
    store(engine, lasting)
    for at_s in range(START_S + HOUR_S, until_s + 900, 900):
        evaluator.evaluate(at_s)
    found = stored(engine, own(), 0, until_s + 900)
    assert "acme" in found
    assert len(found) == few_slots + 1
    assert sum(each.events for each in found.values()) == len(rows) + len(lasting)


def test_a_burst_of_new_names_takes_no_slot_from_an_active_group(
    engine: Engine, request_row: Row, few_slots: int
) -> None:
    """One slot is free. Only this slot goes to an invented name."""
    store(engine, day(request_row, acme=10, globex=10))
    evaluator = Evaluator(engine, [own()])
    evaluator.evaluate(END_S)
    burst = [
        request_row(received_unix_ns=(END_S + at) * S, tenant=f"x{at}", ttft_s=9.0)
        for at in range(20)
    ]
    store(engine, burst)
    evaluator.evaluate(END_S + 600)
    found = stored(engine, own(), 0, END_S + 600)
    assert {"acme", "globex"} <= set(found)
    assert len(found) == few_slots + 1


def test_new_reserved_groups_take_the_slots_of_the_least_active_groups(
    engine: Engine, request_row: Row, few_slots: int
) -> None:
    store(engine, day(request_row, acme=10, globex=10))
    store(engine, [request_row(received_unix_ns=(END_S - 60) * S, tenant="rare")])
    Evaluator(engine, [own()]).evaluate(END_S)
    reserving = own(reserved=["vip"])
    Evaluator(engine, [reserving]).evaluate(END_S + 600)
    assert set(stored(engine, reserving, 0, END_S)) == {OTHER, "acme", "globex", "vip"}


@pytest.mark.usefixtures("few_slots")
def test_objectives_with_the_same_events_count_each_request_once(
    engine: Engine, request_row: Row
) -> None:
    """No slot is free, and only the second objective reserves a slot."""
    both = [own(name="first"), own(name="second", reserved=["vip"])]
    rows = day(request_row, acme=10, globex=60, initech=600)
    store(engine, rows)
    evaluator = Evaluator(engine, both)
    evaluator.evaluate(END_S)
    late = [
        request_row(received_unix_ns=at_s * S, tenant="vip")
        for at_s in range(END_S, END_S + HOUR_S, 60)
    ]
    store(engine, late)
    evaluator.evaluate(END_S + HOUR_S + 600)
    for each in both:
        found = stored(engine, each, 0, END_S + HOUR_S + 600)
        assert set(found) == {OTHER, "acme", "globex", "vip"}
        assert found["vip"].events == len(late)
        assert sum(one.events for one in found.values()) == len(rows) + len(late)


def test_an_incident_of_any_objective_with_the_same_events_keeps_the_slot(
    engine: Engine, request_row: Row, few_slots: int
) -> None:
    both = [own(name="first"), own(name="second")]
    store(engine, [request_row(received_unix_ns=START_S * S, tenant=name) for name in "abc"])
    at_s = START_S + 60
    Evaluator(engine, both).evaluate(at_s)
    name = groups.name("second", ("tenant",), ("a",))
    incident = IncidentRow(name, "page", at_s, at_s, at_s, None, at_s, "20", None)
    store_evaluation(engine, name, at_s, [incident])
    until_s = START_S + 5 * HOUR_S
    active = [
        request_row(received_unix_ns=at_s * S, tenant=name)
        for name in ("x", "y", "z")
        for at_s in range(START_S + HOUR_S, until_s, 600)
    ]
    store(engine, active)
    evaluator = Evaluator(engine, both)
    for at_s in range(START_S + HOUR_S, until_s, 1800):
        evaluator.slots.update(both, at_s)
    separate = {each.group[0][1] for each in groups_of(engine, both[1])[1:]}
    assert "a" in separate
    assert len(separate & {"x", "y", "z"}) == few_slots - 1


def test_before_the_first_evaluation_reserved_groups_have_their_slots(
    engine: Engine, request_row: Row
) -> None:
    names = [f"vip{at}" for at in range(groups.SLOTS)]
    store(engine, day(request_row, acme=10))
    assert set(stored(engine, own(reserved=names), 0, END_S)) == {OTHER, *names}


def test_a_reserved_group_has_a_slot_before_its_first_request(
    engine: Engine, request_row: Row
) -> None:
    objective = own(reserved=["vip"])
    store(engine, [request_row(received_unix_ns=START_S * S, tenant="acme")])
    Evaluator(engine, [objective]).evaluate(START_S + 60)
    store(engine, [request_row(received_unix_ns=(START_S + 90) * S, tenant="vip")])
    found = stored(engine, objective, 0, START_S + 200)
    assert found["vip"] == EventCounts(0, 1)


def test_before_the_first_evaluation_groups_are_found_in_the_rows(
    engine: Engine, request_row: Row
) -> None:
    """`tailspan slo status` reads the groups of a new objective from the rows."""
    store(engine, day(request_row, acme=10, globex=10))
    found = stored(engine, own(), 0, END_S + 15)
    assert found == recounted(engine, own(), 0, END_S + 15)
    assert found["acme"] == EventCounts(BAD_S // 10, (END_S - START_S) // 10)


VALUES = st.sampled_from(["", "a", "b", "other", 'quo"te', "naïve", "line\nend"])


@given(
    separate=st.lists(st.tuples(VALUES, VALUES), unique=True, max_size=4),
    tenant=VALUES,
    model=VALUES,
)
def test_every_request_is_in_exactly_one_group(
    separate: list[Group], tenant: str, model: str
) -> None:
    by = ("tenant", "model")
    separate = [each for each in separate if each != groups.other(by)]
    row = _row(tenant=tenant or None, model=model or None)
    chosen = [
        group
        for group in (groups.other(by), *separate)
        if selects(groups.narrowed(None, by, separate, group), row)
    ]
    assert chosen == [(tenant, model) if (tenant, model) in separate else groups.other(by)]


@given(st.tuples(st.text(max_size=20), st.text(max_size=20)))
def test_a_group_is_kept_as_text_and_read_back(group: Group) -> None:
    if any("\ud800" <= letter <= "\udfff" for value in group for letter in value):
        return
    assert groups.read_key(groups.key(group)) == group
    assert groups.name("chat", ("tenant", "model"), group).isprintable()


def _row(**about: Any) -> RequestTimeline:
    return RequestTimeline(
        trace_id="0" * 32,
        span_id="0" * 16,
        request_id="r",
        received_unix_ns=0,
        e2e_s=1.0,
        outcome=Outcome.STOP,
        source=Source.INSTRUMENTATION,
        basis=Basis.HTTP,
        **about,
    )


def test_a_message_names_its_group_and_is_routed_by_it(engine: Engine, request_row: Row) -> None:
    hostile = 'a"c\nme {@channel}'
    rows = [replace(row, tenant=hostile) for row in day(request_row, acme=10)]
    store(engine, [*rows, *day(request_row, globex=10)])
    evaluator = Evaluator(engine, [own()])
    for at_s in range(BEGAN_S - 60, BEGAN_S + 900, 240):
        evaluator.evaluate(at_s)
    team = Channel("team", ReceiverType.ALERTMANAGER, ("page",), Secret("http://127.0.0.1:9"))
    Notifier(engine, [own()], [team], explorer_url=lambda: "https://e.example").enqueue(END_S)
    name = groups.name("chat", ("tenant",), (hostile,))
    assert name == 'chat{tenant="a\\"c\\nme {@channel}"}'
    (row,) = read_notifications(engine, name)
    message = loads(row.message)
    assert dict(message.group) == {"tenant": 'a"c�me {@channel}'}
    assert message.link is not None
    incident = parse_qs(urlsplit(message.link).query)["incident"]
    assert incident == [f"{name}@{message.fired_unix_s}"]
    (alert,) = json.loads(alertmanager.render(team, message, END_S).body)
    assert alert["labels"] == {
        "alertname": "TailspanBudgetBurn",
        "slo": "chat",
        "service": "chat",
        "severity": "page",
        "tenant": 'a"c�me {@channel}',
    }
    assert name in alert["annotations"]["summary"].replace("＠", "@")


def test_an_alert_has_the_labels_and_annotations_of_its_rule(
    engine: Engine, request_row: Row
) -> None:
    """Alertmanager merges and routes the alerts of both evaluators by these labels."""
    objective = replace(
        own(), labels=(("team", "search"),), annotations=(("runbook_url", "https://r.example"),)
    )
    store(engine, day(request_row, acme=10))
    evaluator = Evaluator(engine, [objective])
    for at_s in range(BEGAN_S - 60, BEGAN_S + 900, 240):
        evaluator.evaluate(at_s)
    team = Channel("team", ReceiverType.ALERTMANAGER, ("page",), Secret("http://127.0.0.1:9"))
    Notifier(engine, [objective], [team], explorer_url=lambda: "https://e.example").enqueue(END_S)
    (row,) = read_notifications(engine, groups.name("chat", ("tenant",), ("acme",)))
    (alert,) = json.loads(alertmanager.render(team, loads(row.message), END_S).body)
    written = yaml.safe_load(tailspan_rules([objective], "https://e.example"))
    rule = next(
        each
        for group in written["groups"]
        for each in group["rules"]
        if each.get("alert") == "TailspanBudgetBurn" and each["labels"]["severity"] == "page"
    )
    assert alert["labels"] == {
        **rule["labels"],
        "alertname": "TailspanBudgetBurn",
        "tenant": "acme",
    }
    assert set(alert["annotations"]) == set(rule["annotations"])
    assert alert["annotations"]["runbook_url"] == rule["annotations"]["runbook_url"]
