"""Questions about engine starts: what is in force, and what a fingerprint stands for."""

from collections.abc import Iterable

from sqlalchemy import Engine, Row, func, select

from store.reaching import reading
from store.schema import STARTS
from telemetry.starts import EngineStart

_INT64_LAST = 2**63 - 1


def in_force(engine: Engine, at_unix_ns: int = _INT64_LAST) -> list[EngineStart]:
    """What each engine of each replica was last started with, by `at_unix_ns`.

    Several processes may report one engine; the latest word counts. An engine that has ended
    is among them: a start does not say how long it held.
    """
    latest = func.row_number().over(
        partition_by=(STARTS.c.replica, STARTS.c.engine),
        order_by=(STARTS.c.at_unix_ns.desc(), STARTS.c.process),
    )
    ranked = (
        select(STARTS, latest.label("place")).where(STARTS.c.at_unix_ns <= at_unix_ns).subquery()
    )
    columns = [ranked.c[column.name] for column in STARTS.columns]
    statement = (
        select(*columns).where(ranked.c.place == 1).order_by(ranked.c.replica, ranked.c.engine)
    )
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def starts_between(engine: Engine, from_unix_ns: int, to_unix_ns: int) -> list[EngineStart]:
    """The starts t with from ≤ t < to, in the order of time."""
    statement = (
        select(STARTS)
        .where(STARTS.c.at_unix_ns >= from_unix_ns, STARTS.c.at_unix_ns < to_unix_ns)
        .order_by(STARTS.c.at_unix_ns)
    )
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def starts_of(engine: Engine, config: str) -> list[EngineStart]:
    """The latest start with each configuration whose fingerprint begins so, by fingerprint."""
    latest = func.row_number().over(
        partition_by=STARTS.c.config, order_by=STARTS.c.at_unix_ns.desc()
    )
    ranked = (
        select(STARTS, latest.label("place"))
        # Not LIKE: its escaped form is not known to ClickHouse, and its wildcards are no digits.
        .where(func.substr(STARTS.c.config, 1, len(config)) == config)
        .subquery()
    )
    columns = [ranked.c[column.name] for column in STARTS.columns]
    statement = select(*columns).where(ranked.c.place == 1).order_by(ranked.c.config)
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def _starts(rows: Iterable[Row[tuple[object, ...]]]) -> list[EngineStart]:
    return [EngineStart(**row._mapping) for row in rows]
