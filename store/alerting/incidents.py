"""Store incidents, and the time until which each objective was evaluated."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Table,
    Text,
    or_,
    select,
    true,
)

from store import dialects
from store.connections import reading, writing
from store.schema import STATE_METADATA
from store.state import state_of
from telemetry.incidents import IncidentRow

INCIDENTS = Table(
    "slo_incidents",
    STATE_METADATA,
    Column("slo", Text, primary_key=True),
    Column("severity", Text, primary_key=True),
    Column("fired_unix_s", BigInteger, primary_key=True, autoincrement=False),
    Column("began_unix_s", BigInteger, nullable=False),
    Column("last_unix_s", BigInteger, nullable=False),
    Column("ended_unix_s", BigInteger),
    Column("peak_unix_s", BigInteger, nullable=False),
    Column("peak_burn", Text, nullable=False),
    Column("budget_spent", Text),
    Column("simulated", Boolean),
)
EVALUATIONS = Table(
    "slo_evaluations",
    STATE_METADATA,
    Column("slo", Text, primary_key=True),
    Column("until_unix_s", BigInteger, nullable=False),
)


def read_incidents(engine: Engine, slo: str, *, open_only: bool = False) -> list[IncidentRow]:
    """An objective's incidents, the newest first."""
    statement = select(INCIDENTS).where(INCIDENTS.c.slo == slo)
    if open_only:
        statement = statement.where(INCIDENTS.c.ended_unix_s.is_(None))
    with reading(state_of(engine)) as connection:
        rows = connection.execute(statement.order_by(INCIDENTS.c.fired_unix_s.desc()))
        return [IncidentRow(**row._mapping) for row in rows]


def read_overlapping(engine: Engine, from_s: int, to_s: int) -> list[IncidentRow]:
    """The incidents of all objectives that overlap [from, to), the oldest first."""
    over = INCIDENTS.c.ended_unix_s
    statement = (
        select(INCIDENTS)
        .where(INCIDENTS.c.began_unix_s < to_s, or_(over.is_(None), over > from_s))
        .order_by(INCIDENTS.c.began_unix_s)
    )
    with reading(state_of(engine)) as connection:
        return [IncidentRow(**row._mapping) for row in connection.execute(statement)]


def evaluated_until(engine: Engine, slo: str) -> int | None:
    """The time until which an objective was evaluated, or None."""
    with reading(state_of(engine)) as connection:
        until: int | None = connection.scalar(
            select(EVALUATIONS.c.until_unix_s).where(EVALUATIONS.c.slo == slo)
        )
    return until


def store_evaluation(
    engine: Engine, slo: str, until_s: int, changed: Sequence[IncidentRow]
) -> None:
    """Store the result of an evaluation, in one transaction."""
    upsert = dialects.of(state_of(engine)).upsert
    with writing(state_of(engine)) as connection:
        if changed:
            upsert(connection, INCIDENTS, [asdict(row) for row in changed])
        upsert(connection, EVALUATIONS, [{"slo": slo, "until_unix_s": until_s}])


def remove_simulated(connection: Connection) -> list[tuple[str, str, int]]:
    """Delete the incidents that only simulated requests caused. Return the objective, severity and
    start of each."""
    keys = select(INCIDENTS.c.slo, INCIDENTS.c.severity, INCIDENTS.c.fired_unix_s)
    found = connection.execute(keys.where(INCIDENTS.c.simulated == true())).all()
    dialects.of(connection.engine).remove(connection, INCIDENTS, INCIDENTS.c.simulated == true())
    return [(row[0], row[1], row[2]) for row in found]
