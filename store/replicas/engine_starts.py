"""Read engine starts, find arguments by their fingerprint, and delete old starts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Engine, Row, and_, func, or_, select

from store import dialects
from store.connections import reading, writing
from store.rollups.marks import SAMPLE_ROLLUPS, SECOND_NS, whole_from_unix_s
from store.rollups.tables import MINUTE_S, NAMES
from store.schema import SAMPLES, STARTS
from telemetry.starts import EngineStart

UNSEEN_NS: Final = 3_600 * 10**9
"""If no sample and no request of a replica was stored for this long, the replica does not exist: a
sender invented its name. Engines send samples every 5 s, unless the metrics are disabled. The
replica's starts are deleted."""
MAX_OF_REPLICA: Final = 1_000
MAX_UNSEEN: Final = 10_000
"""Maximum number of starts to keep for replicas that have no stored samples and no stored requests.
Bills may need these starts."""
_AT_ONCE: Final = 200
_INT64_LAST = 2**63 - 1


class StartKey(NamedTuple):
    """The key of a start, in the order of the key's columns."""

    replica: str
    engine: int
    process: int
    at_unix_ns: int


def in_force(
    engine: Engine, at_unix_ns: int = _INT64_LAST, replicas: Collection[str] | None = None
) -> list[EngineStart]:
    """The latest start of each engine of each replica until `at_unix_ns`.

    Ended engines are included, because the store has no end times. If `replicas` is None, all
    replicas are read.
    """
    latest = func.row_number().over(
        partition_by=(STARTS.c.replica, STARTS.c.engine),
        order_by=(STARTS.c.at_unix_ns.desc(), STARTS.c.process),
    )
    starts = select(STARTS, latest.label("place")).where(STARTS.c.at_unix_ns <= at_unix_ns)
    if replicas is not None:
        starts = starts.where(STARTS.c.replica.in_(sorted(replicas)))
    ranked = starts.subquery()
    columns = [ranked.c[column.name] for column in STARTS.columns]
    statement = (
        select(*columns).where(ranked.c.place == 1).order_by(ranked.c.replica, ranked.c.engine)
    )
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def starts_between(engine: Engine, from_unix_ns: int, to_unix_ns: int) -> list[EngineStart]:
    """The starts in [from, to), in order of time."""
    statement = (
        select(STARTS)
        .where(STARTS.c.at_unix_ns >= from_unix_ns, STARTS.c.at_unix_ns < to_unix_ns)
        .order_by(STARTS.c.at_unix_ns)
    )
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def starts_of(engine: Engine, config: str) -> list[EngineStart]:
    """The latest start of each configuration whose fingerprint begins with `config`."""
    latest = func.row_number().over(
        partition_by=STARTS.c.config, order_by=STARTS.c.at_unix_ns.desc()
    )
    ranked = (
        select(STARTS, latest.label("place"))
        # ClickHouse does not support the ESCAPE clause of LIKE
        .where(func.substr(STARTS.c.config, 1, len(config)) == config)
        .subquery()
    )
    columns = [ranked.c[column.name] for column in STARTS.columns]
    statement = select(*columns).where(ranked.c.place == 1).order_by(ranked.c.config)
    with reading(engine) as connection:
        return _starts(connection.execute(statement).all())


def delete_starts(
    engine: Engine, keep_rows_ns: int | None, keep_hours_ns: int | None, now_unix_ns: int
) -> int:
    """Delete the starts that `deletable` returns, and return their number.

    If `keep_rows_ns` is None, no rows have been deleted since the last deletion.
    """
    if keep_rows_ns is None:
        kept_from_s = whole_from_unix_s(engine, MINUTE_S, SAMPLE_ROLLUPS) or 0
        keep_rows_ns = now_unix_ns - kept_from_s * SECOND_NS
    with reading(engine) as connection:
        rows = connection.execute(select(*(STARTS.c[name] for name in StartKey._fields)))
        keys = [StartKey(*row) for row in rows]

    def is_seen(replica: str) -> bool:
        # The requests have no index by replica, so search the names of replicas in the rollups,
        # which have one.
        named = select(NAMES.c.value).where(NAMES.c.label == "replica", NAMES.c.value == replica)
        sampled = select(SAMPLES.c.replica).where(SAMPLES.c.replica == replica)
        with reading(engine) as connection:
            return any(connection.scalar(each.limit(1)) is not None for each in (sampled, named))

    gone = deletable(keys, is_seen, keep_rows_ns, keep_hours_ns, now_unix_ns)
    for first in range(0, len(gone), _AT_ONCE):
        which = or_(
            *(
                and_(*(STARTS.c[name] == value for name, value in key._asdict().items()))
                for key in gone[first : first + _AT_ONCE]
            )
        )
        with writing(engine) as connection:
            dialects.of(engine).remove(connection, STARTS, which)
    return len(gone)


def deletable(
    starts: Iterable[StartKey],
    is_seen: Callable[[str], bool],
    keep_rows_ns: int,
    keep_hours_ns: int | None,
    now_unix_ns: int,
) -> Sequence[StartKey]:
    """The starts that are not needed any more, the oldest first. Pure.

    Args:
        keep_hours_ns: retention of the data for bills. If None, the data is kept indefinitely.
    """
    by_replica: dict[str, list[StartKey]] = defaultdict(list)
    for key in sorted(starts, key=lambda each: each.at_unix_ns):
        by_replica[key.replica].append(key)
    gone: list[StartKey] = []
    unseen: list[StartKey] = []
    for replica, keys in by_replica.items():
        newest = {key.engine: key for key in keys}
        kept: list[StartKey] = []
        if is_seen(replica):
            for key in keys:
                age_ns = now_unix_ns - key.at_unix_ns
                superseded = newest[key.engine] is not key
                old = keep_hours_ns is not None and age_ns > keep_hours_ns
                (gone if superseded and old else kept).append(key)
            gone += kept[:-MAX_OF_REPLICA]
            continue
        for key in keys:
            age_ns = now_unix_ns - key.at_unix_ns
            # The samples of an older start may already have been deleted.
            made_up = UNSEEN_NS < age_ns < keep_rows_ns
            old = keep_hours_ns is not None and age_ns > keep_hours_ns
            (gone if made_up or old else kept).append(key)
        unseen += kept
    unseen.sort(key=lambda each: each.at_unix_ns)
    return sorted([*gone, *unseen[:-MAX_UNSEEN]], key=lambda each: each.at_unix_ns)


def _starts(rows: Iterable[Row[tuple[object, ...]]]) -> list[EngineStart]:
    return [EngineStart(**row._mapping) for row in rows]
