"""Incidents as they are kept, and up to when each objective was evaluated.

Plain numbers here: what they mean is `alerts/`' affair. The evaluation and what it found are
written together, so that a restart goes on where it was and repeats nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, Text, delete, inspect, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError

from store.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident; an exact number is kept as text. Instants in unix seconds."""

    slo: str
    severity: str
    fired_unix_s: int
    began_unix_s: int
    last_unix_s: int
    ended_unix_s: int | None
    peak_unix_s: int
    peak_burn: str
    budget_spent: str | None


_METADATA = MetaData()
INCIDENTS = Table(
    "slo_incidents",
    _METADATA,
    Column("slo", Text, primary_key=True),
    Column("severity", Text, primary_key=True),
    Column("fired_unix_s", BigInteger, primary_key=True, autoincrement=False),
    Column("began_unix_s", BigInteger, nullable=False),
    Column("last_unix_s", BigInteger, nullable=False),
    Column("ended_unix_s", BigInteger),
    Column("peak_unix_s", BigInteger, nullable=False),
    Column("peak_burn", Text, nullable=False),
    Column("budget_spent", Text),
)
EVALUATIONS = Table(
    "slo_evaluations",
    _METADATA,
    Column("slo", Text, primary_key=True),
    Column("until_unix_s", BigInteger, nullable=False),
)


def read_incidents(engine: Engine, slo: str, *, open_only: bool = False) -> list[IncidentRow]:
    """An objective's incidents, the newest first."""
    if not _there(engine):
        return []
    statement = select(INCIDENTS).where(INCIDENTS.c.slo == slo)
    if open_only:
        statement = statement.where(INCIDENTS.c.ended_unix_s.is_(None))
    try:
        with engine.connect() as connection:
            rows = connection.execute(statement.order_by(INCIDENTS.c.fired_unix_s.desc()))
            return [IncidentRow(**row._mapping) for row in rows]
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be read: {error.orig}") from error


def evaluated_until(engine: Engine, slo: str) -> int | None:
    """Up to when an objective was evaluated; None where it never was."""
    if not _there(engine):
        return None
    try:
        with engine.connect() as connection:
            until: int | None = connection.scalar(
                select(EVALUATIONS.c.until_unix_s).where(EVALUATIONS.c.slo == slo)
            )
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be read: {error.orig}") from error
    return until


def keep_evaluation(engine: Engine, slo: str, until_s: int, changed: Sequence[IncidentRow]) -> None:
    """Keep how far an objective was evaluated, and the incidents as they are since."""
    _METADATA.create_all(engine)
    put, mark = insert(INCIDENTS), insert(EVALUATIONS).values(slo=slo, until_unix_s=until_s)
    names = [column.name for column in INCIDENTS.columns]
    keys = [column.name for column in INCIDENTS.primary_key]
    rows = [{name: getattr(row, name) for name in names} for row in changed]
    try:
        with engine.begin() as connection:
            if rows:
                connection.execute(
                    put.on_conflict_do_update(
                        index_elements=keys,
                        set_={name: put.excluded[name] for name in names if name not in keys},
                    ),
                    rows,
                )
            connection.execute(
                mark.on_conflict_do_update(
                    index_elements=["slo"], set_={"until_unix_s": mark.excluded.until_unix_s}
                )
            )
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be written: {error.orig}") from error


def forget_incidents(engine: Engine) -> None:
    """Drop all incidents, and how far anything was evaluated."""
    if _there(engine):
        with engine.begin() as connection:
            connection.execute(delete(INCIDENTS))
            connection.execute(delete(EVALUATIONS))


def _there(engine: Engine) -> bool:
    return inspect(engine).has_table(EVALUATIONS.name)
