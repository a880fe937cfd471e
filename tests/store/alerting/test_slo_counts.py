from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Engine

from store.alerting.incidents import evaluated_until, read_incidents, store_evaluation
from store.alerting.notifications import read_notifications, store_notifications
from store.alerting.slo_counts import (
    PROBE_DEFINITIONS,
    CountedRange,
    SloCount,
    earliest_counted_s,
    mark_counts_incomplete,
    read_counted_range,
    read_counts,
    stepped_counts,
    store_counts,
    summed_counts,
)
from store.simulation_removal import delete_simulation
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification
from telemetry.requests import Source

FIRST, SECOND = SloCount(60, 9, 1, 0, 0, 0), SloCount(120, 8, 0, 1, 2, 3)


def test_an_uncounted_objective_has_no_range(engine: Engine) -> None:
    assert read_counted_range(engine, "a") is None
    assert read_counts(engine, "a", 0, 1000) == []


def test_counts_are_read_by_definition_and_range(engine: Engine) -> None:
    store_counts(engine, "a", [FIRST, SECOND], CountedRange(0, 120))
    store_counts(engine, "b", [], CountedRange(0, 60))
    assert read_counted_range(engine, "a") == CountedRange(0, 120)
    assert read_counted_range(engine, "b") == CountedRange(0, 60)
    assert read_counts(engine, "a", 0, 120) == [FIRST, SECOND]
    assert read_counts(engine, "a", 60, 120) == [SECOND]
    assert read_counts(engine, "b", 0, 120) == []


def test_counting_again_replaces_and_does_not_add(engine: Engine) -> None:
    store_counts(engine, "a", [FIRST, SECOND], CountedRange(0, 120))
    store_counts(engine, "a", [SECOND, SloCount(180, 1, 1, 1, 1, 1)], CountedRange(0, 180))
    assert [each.until_unix_s for each in read_counts(engine, "a", 0, 999)] == [60, 120, 180]
    assert read_counted_range(engine, "a") == CountedRange(0, 180)


def test_the_database_adds_up_between_instants(engine: Engine) -> None:
    every = [SloCount(60 * n, n, 1, 0, 0, n % 2) for n in range(1, 11)]
    store_counts(engine, "a", every, CountedRange(0, 600))
    store_counts(engine, "b", [SloCount(60, 999, 0, 0, 0, 0)], CountedRange(0, 600))
    assert summed_counts(engine, "a", [0, 120, 600, 900]) == [
        SloCount(120, 3, 2, 0, 0, 1),
        SloCount(600, 52, 8, 0, 0, 4),
    ]
    assert summed_counts(engine, "c", [0, 900]) == []
    assert stepped_counts(engine, "a", 60, 500, 240) == [
        SloCount(300, 14, 4, 0, 0, 2),
        SloCount(540, 21, 3, 0, 0, 1),
    ]
    assert stepped_counts(engine, "a", 600, 900, 60) == []


def test_deleting_a_simulation_leaves_real_counts_and_incidents(
    engine: Engine, write: Callable[..., None], request_row: Callable[..., object]
) -> None:
    write(request_row(source=Source.SIMULATOR))
    simulated = replace(SECOND, simulated=True)
    store_counts(engine, "a", [FIRST, SECOND, simulated], CountedRange(0, 120))
    store_evaluation(engine, "chat", 120, [incident(60, False), incident(120, True)])
    store_notifications(engine, [notification(60), notification(120)])
    assert read_counts(engine, "a", 0, 999) == [FIRST, SECOND, simulated]
    delete_simulation(engine)
    assert read_counted_range(engine, "a") == CountedRange(0, 120)
    assert read_counts(engine, "a", 0, 999) == [FIRST, SECOND]
    assert [each.fired_unix_s for each in read_incidents(engine, "chat")] == [60]
    assert [each.fired_unix_s for each in read_notifications(engine, "chat")] == [60]
    assert evaluated_until(engine, "chat") == 120


def test_a_stretch_that_a_simulation_began_begins_with_the_first_real_count(engine: Engine) -> None:
    """Steps with only simulated requests are not covered."""
    store_counts(engine, "a", [replace(FIRST, simulated=True), SECOND], CountedRange(0, 180))
    store_counts(engine, "b", [replace(FIRST, simulated=True)], CountedRange(0, 180))
    store_counts(engine, "c", [FIRST], CountedRange(0, 180))
    delete_simulation(engine)
    assert read_counted_range(engine, "a") == CountedRange(105, 180)
    assert read_counted_range(engine, "b") is None
    assert read_counted_range(engine, "c") == CountedRange(0, 180)


def test_counts_of_a_changed_stretch_are_not_kept(engine: Engine) -> None:
    """They may lack requests whose marks another evaluator removed."""
    store_counts(engine, "a", [FIRST], CountedRange(0, 120))
    mark_counts_incomplete(engine, 60, [])
    assert read_counted_range(engine, "a") == CountedRange(0, 60)
    assert not store_counts(engine, "a", [SECOND], CountedRange(0, 180), since=CountedRange(0, 120))
    assert read_counted_range(engine, "a") == CountedRange(0, 60)
    assert store_counts(engine, "a", [SECOND], CountedRange(0, 180), since=CountedRange(0, 60))
    assert read_counts(engine, "a", 0, 999) == [FIRST, SECOND]


def test_a_step_that_is_empty_when_counted_again_is_deleted(engine: Engine) -> None:
    """A better source may have moved the request to another step."""
    store_counts(engine, "a", [FIRST, SECOND], CountedRange(0, 120))
    mark_counts_incomplete(engine, 60, [])
    assert store_counts(engine, "a", [], CountedRange(0, 120), since=CountedRange(0, 60))
    assert read_counts(engine, "a", 0, 999) == [FIRST]


def incident(fired_s: int, simulated: bool) -> IncidentRow:
    return IncidentRow("chat", "page", fired_s, 0, fired_s, None, fired_s, "20", None, simulated)


def notification(fired_s: int) -> Notification:
    return Notification("chat", "page", fired_s, "firing", "hook", "{}", fired_s)


def test_new_requests_and_new_probes_count_their_own_objectives_again(engine: Engine) -> None:
    of_probes = f"{PROBE_DEFINITIONS}b.1"
    for definition in ("a", of_probes):
        store_counts(engine, definition, [], CountedRange(60, 120))
    mark_counts_incomplete(engine, 30, [])
    assert read_counted_range(engine, "a") == CountedRange(30, 30)
    assert read_counted_range(engine, of_probes) == CountedRange(60, 120)
    mark_counts_incomplete(engine, None, [], 75)
    assert read_counted_range(engine, "a") == CountedRange(30, 30)
    assert read_counted_range(engine, of_probes) == CountedRange(60, 75)


def test_the_earliest_counts_are_those_of_any_objective(engine: Engine) -> None:
    assert earliest_counted_s(engine, probes=False) is None
    store_counts(engine, "a", [], CountedRange(60, 120))
    store_counts(engine, "b", [], CountedRange(90, 120))
    store_counts(engine, f"{PROBE_DEFINITIONS}c", [], CountedRange(30, 120))
    assert earliest_counted_s(engine, probes=False) == 60
    assert earliest_counted_s(engine, probes=True) == 30
