"""Store predictions of the effect of a change, to compare them with the measured effect later.

Any process that computes a prediction adds a row. Rows are never changed. Only the collector
deletes them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Engine, Table, Text, func, select

from store import dialects
from store.connections import reading, writing
from store.schema import STATE_METADATA
from store.state import state_of

MAX_STORED: Final = 1_000
"""Maximum number of predictions that deletion keeps. It keeps the newest."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted effect of a change, computed at `asked_unix_ns` from the requests of a
    window."""

    asked_unix_ns: int
    change: str
    """The edits in canonical form, such as `max_num_seqs=64,replicas=2`."""
    from_unix_ns: int
    to_unix_ns: int
    predicted: str
    """The predicted effect as JSON. For each latency and percentile, it has the relative change,
    its lower bound and its upper bound. Example: `{"ttft": {"p99": [-0.1, -0.2, 0.0]}}`."""
    simulated: bool


PREDICTIONS = Table(
    "predictions",
    STATE_METADATA,
    Column("asked_unix_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("change", Text, primary_key=True),
    Column("from_unix_ns", BigInteger, nullable=False),
    Column("to_unix_ns", BigInteger, nullable=False),
    Column("predicted", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
)


def store_prediction(engine: Engine, row: Prediction) -> None:
    """Add a prediction."""
    with writing(state_of(engine)) as connection:
        dialects.of(connection.engine).upsert(connection, PREDICTIONS, [asdict(row)])


def predictions(engine: Engine) -> Sequence[Prediction]:
    """The newest `MAX_STORED` predictions, the newest first."""
    newest = PREDICTIONS.c.asked_unix_ns.desc()
    statement = select(PREDICTIONS).order_by(newest, PREDICTIONS.c.change).limit(MAX_STORED)
    with reading(state_of(engine)) as connection:
        return [Prediction(**row._mapping) for row in connection.execute(statement)]


def newest_asked_unix_ns(engine: Engine, change: str, until_unix_ns: int) -> int | None:
    """The time of the newest prediction of a change until an instant, or None."""
    asked = PREDICTIONS.c.asked_unix_ns
    newest = select(func.max(asked)).where(PREDICTIONS.c.change == change, asked <= until_unix_ns)
    with reading(state_of(engine)) as connection:
        # ClickHouse returns 0 instead of NULL.
        return connection.scalar(newest) or None


def delete_old_predictions(engine: Engine, before_unix_ns: int) -> None:
    """Delete the predictions from before a time. Also delete all except the newest `MAX_STORED`
    predictions."""
    newest = PREDICTIONS.c.asked_unix_ns.desc()
    beyond = select(PREDICTIONS.c.asked_unix_ns).order_by(newest).offset(MAX_STORED).limit(1)
    with reading(state_of(engine)) as connection:
        last = connection.scalar(beyond)
        oldest = connection.scalar(select(func.min(PREDICTIONS.c.asked_unix_ns)))
    ends = before_unix_ns if last is None else max(before_unix_ns, last + 1)
    if oldest is not None and oldest < ends:
        with writing(state_of(engine)) as connection:
            old = PREDICTIONS.c.asked_unix_ns < ends
            dialects.of(connection.engine).remove(connection, PREDICTIONS, old)
