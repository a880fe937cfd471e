from dataclasses import replace

from sqlalchemy import Engine

from store.alerting.incident_answers import (
    AnswerRow,
    Phase,
    answers_of,
    delete_old_answers,
    read_answers,
    store_incident_answer,
)
from store.alerting.incidents import store_evaluation
from store.simulation_removal import delete_simulation
from telemetry.incidents import IncidentRow

PAGE = IncidentRow("chat", "page", 160, 100, 160, None, 160, "20", None)
ROW = AnswerRow("chat", "page", 160, Phase.OPEN, 200, 1, "{}", "{}")


def test_an_incident_has_one_answer_per_phase_the_newest_first(engine: Engine) -> None:
    assert answers_of(engine, PAGE) == []
    ended = replace(ROW, phase=Phase.ENDED, computed_unix_s=500)
    newer = replace(ROW, computed_unix_s=300, answer='{"newer": 1}')
    for row in (ROW, ended, newer):
        store_incident_answer(engine, row)
    assert answers_of(engine, PAGE) == [ended, newer]


def test_another_incident_has_its_own_answers(engine: Engine) -> None:
    ticket, later = replace(ROW, severity="ticket"), replace(ROW, fired_unix_s=900)
    for row in (ROW, ticket, later, replace(ROW, slo="other")):
        store_incident_answer(engine, row)
    assert answers_of(engine, PAGE) == [ROW]
    assert read_answers(engine, "chat", 161) == [later]


def test_the_end_of_a_simulation_deletes_the_answers_of_its_incidents(engine: Engine) -> None:
    made = replace(PAGE, fired_unix_s=900, simulated=True)
    store_evaluation(engine, "chat", 1_000, [PAGE, made])
    store_incident_answer(engine, ROW)
    store_incident_answer(engine, replace(ROW, fired_unix_s=900))
    delete_simulation(engine)
    assert read_answers(engine, "chat") == [ROW]


def test_the_answers_of_an_incident_that_ended_long_ago_are_deleted(engine: Engine) -> None:
    """An open incident keeps its answer, however old it is."""
    ended = replace(PAGE, fired_unix_s=900, ended_unix_s=1_000)
    recent = replace(PAGE, fired_unix_s=950, ended_unix_s=5_000)
    store_evaluation(engine, "chat", 6_000, [PAGE, ended, recent])
    kept = [ROW, replace(ROW, fired_unix_s=950)]
    for each in (Phase.OPEN, Phase.ENDED):
        store_incident_answer(
            engine, replace(ROW, fired_unix_s=900, phase=each, computed_unix_s=1_001)
        )
    for row in kept:
        store_incident_answer(engine, row)
    assert delete_old_answers(engine, 1_000) == 0
    assert delete_old_answers(engine, 2_000) == 2
    assert sorted(read_answers(engine, "chat"), key=lambda row: row.fired_unix_s) == kept
