from dataclasses import replace

from sqlalchemy import Engine

from store.alerting.incident_answers import (
    AnswerRow,
    Phase,
    answers_of,
    keep_answer,
    read_answers,
)
from store.alerting.incidents import IncidentRow, keep_evaluation
from store.simulation_removal import delete_simulation

PAGE = IncidentRow("chat", "page", 160, 100, 160, None, 160, "20", None)
ROW = AnswerRow("chat", "page", 160, Phase.OPEN, 200, 1, "{}", "{}")


def test_an_incident_has_one_answer_per_phase_the_newest_first(engine: Engine) -> None:
    assert answers_of(engine, PAGE) == []
    ended = replace(ROW, phase=Phase.ENDED, computed_unix_s=500)
    newer = replace(ROW, computed_unix_s=300, answer='{"newer": 1}')
    for row in (ROW, ended, newer):
        keep_answer(engine, row)
    assert answers_of(engine, PAGE) == [ended, newer]


def test_another_incident_has_its_own_answers(engine: Engine) -> None:
    ticket, later = replace(ROW, severity="ticket"), replace(ROW, fired_unix_s=900)
    for row in (ROW, ticket, later, replace(ROW, slo="other")):
        keep_answer(engine, row)
    assert answers_of(engine, PAGE) == [ROW]
    assert read_answers(engine, "chat", 161) == [later]


def test_the_end_of_a_simulation_deletes_the_answers_of_its_incidents(engine: Engine) -> None:
    made = replace(PAGE, fired_unix_s=900, simulated=True)
    keep_evaluation(engine, "chat", 1_000, [PAGE, made])
    keep_answer(engine, ROW)
    keep_answer(engine, replace(ROW, fired_unix_s=900))
    delete_simulation(engine)
    assert read_answers(engine, "chat") == [ROW]
