"""Store the explanation ("answer") of each incident, so that all pages and commands show the same
explanation.

An incident has one answer for the time while it is open, and a second answer after its end. Only
the process that evaluates objectives writes answers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    Text,
    and_,
    select,
)

from store import dialects
from store.alerting.incidents import INCIDENTS
from store.connections import reading, writing
from store.schema import STATE_METADATA
from store.state import state_of
from telemetry.incidents import IncidentRow


class Phase(StrEnum):
    """The part of an incident that an answer explains."""

    OPEN = "open"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """The answer of one phase. `question` and `answer` are JSON (`analysis.incident_answer`).
    `version` is the version of the method that computed the answer."""

    slo: str
    severity: str
    fired_unix_s: int
    phase: str
    computed_unix_s: int
    version: int
    question: str
    answer: str


ANSWERS = Table(
    "incident_answers",
    STATE_METADATA,
    Column("slo", Text, primary_key=True),
    Column("severity", Text, primary_key=True),
    Column("fired_unix_s", BigInteger, primary_key=True, autoincrement=False),
    Column("phase", Text, primary_key=True),
    Column("computed_unix_s", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
)


def store_incident_answer(engine: Engine, row: AnswerRow) -> None:
    """Add or replace the answer of an incident and phase."""
    with writing(state_of(engine)) as connection:
        dialects.of(connection.engine).upsert(connection, ANSWERS, [asdict(row)])


def read_answers(engine: Engine, slo: str, from_fired_unix_s: int = 0) -> list[AnswerRow]:
    """The answers of an objective's incidents, the newest first. Only incidents that alerted since
    a time are included."""
    return _read(engine, and_(ANSWERS.c.slo == slo, ANSWERS.c.fired_unix_s >= from_fired_unix_s))


def answers_of(engine: Engine, incident: IncidentRow) -> Sequence[AnswerRow]:
    """An incident's answers, the newest first."""
    return _read(engine, _same_incident(incident.slo, incident.severity, incident.fired_unix_s))


def remove_answers(connection: Connection, incident: tuple[str, str, int]) -> None:
    """Delete the answers of an incident."""
    dialects.of(connection.engine).remove(connection, ANSWERS, _same_incident(*incident))


def delete_old_answers(engine: Engine, before_unix_s: int) -> int:
    """Delete the answers of incidents that ended before a time. Return the number of answers."""
    columns = ANSWERS.c
    over = select(INCIDENTS.c.slo, INCIDENTS.c.severity, INCIDENTS.c.fired_unix_s).where(
        INCIDENTS.c.ended_unix_s < before_unix_s
    )
    old = select(columns.slo, columns.severity, columns.fired_unix_s, columns.phase).where(
        columns.computed_unix_s < before_unix_s
    )
    with reading(state_of(engine)) as connection:
        ended = {tuple(row) for row in connection.execute(over)}
        found = [tuple(row[:3]) for row in connection.execute(old)]
    removable = [incident for incident in found if incident in ended]
    for incident in sorted(set(removable)):
        with writing(state_of(engine)) as connection:
            remove_answers(connection, incident)
    return len(removable)


def _same_incident(slo: str, severity: str, fired_unix_s: int) -> ColumnElement[bool]:
    return and_(
        ANSWERS.c.slo == slo,
        ANSWERS.c.severity == severity,
        ANSWERS.c.fired_unix_s == fired_unix_s,
    )


def _read(engine: Engine, which: ColumnElement[bool]) -> list[AnswerRow]:
    newest = ANSWERS.c.computed_unix_s.desc()
    with reading(state_of(engine)) as connection:
        rows = connection.execute(select(ANSWERS).where(which).order_by(newest, ANSWERS.c.phase))
        return [AnswerRow(**row._mapping) for row in rows]
