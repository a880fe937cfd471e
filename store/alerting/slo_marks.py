"""Mark the time buckets (15 s) whose counts of requests per objective are out of date.

The writer marks the buckets of new requests in the transaction that writes the requests. The
evaluator records the marked buckets as incomplete and removes the marks
(`slo_counts.mark_counts_incomplete`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from secrets import randbits
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import BigInteger, Column, Connection, Engine, Table, Text, and_, select, true

from store import dialects
from store.connections import reading
from store.schema import METADATA
from telemetry.request_rows import RequestRows

SECOND_NS: Final = 10**9
STEP_S: Final = 15
"""Width of a time bucket. It equals the evaluator's interval."""
_STEP_NS: Final = STEP_S * SECOND_NS
_CENTURY_S: Final = 100 * 365 * 86_400
_LATEST: Final = np.iinfo(np.int64).max
PROBE_SOURCE: Final = "probe"
_AT_ONCE: Final = 500

MARKS: Final = Table(
    "slo_marks",
    METADATA,
    Column("token", BigInteger, primary_key=True, autoincrement=False),
    Column("until_unix_s", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),
    Column("received_unix_ns", BigInteger, nullable=False),
)


class Mark(NamedTuple):
    """A time bucket for which one transaction wrote requests of one source. A request belongs to
    the bucket of its end. A request in flight belongs to the bucket of its last report."""

    token: int
    until_unix_s: int
    source: str
    received_unix_ns: int


def marks_of(several: Iterable[RequestRows]) -> list[Mark]:
    """The marks for the requests of one transaction."""
    token = randbits(63)
    earliest: dict[tuple[int, str], int] = defaultdict(lambda: _LATEST)
    for requests in several:
        if not len(requests):
            continue
        received = np.array(requests.column("received_unix_ns"), np.int64)
        # Round as `alerts.evaluation.counting` does. The limit prevents an overflow.
        lasted_s = np.clip(np.nan_to_num(requests.numbers("e2e_s")), -_CENTURY_S, _CENTURY_S)
        lasted = np.rint(lasted_s * SECOND_NS).astype(np.int64)
        received = np.clip(received, -_CENTURY_S * SECOND_NS, _CENTURY_S * SECOND_NS)
        ends = -(-(received + lasted) // _STEP_NS) * STEP_S
        sources = requests.column("source")
        if len(set(sources)) == 1:
            steps, place = np.unique(ends, return_inverse=True)
            first = np.full(steps.shape, _LATEST)
            np.minimum.at(first, place, received)
            found = zip(steps.tolist(), [sources[0]] * len(steps), first.tolist(), strict=True)
        else:
            found = zip(ends.tolist(), sources, received.tolist(), strict=True)
        for until_s, source, received_ns in found:
            key = (until_s, str(source))
            earliest[key] = min(earliest[key], received_ns)
    return [Mark(token, until, source, at) for (until, source), at in sorted(earliest.items())]


def mark_steps(connection: Connection, several: Iterable[RequestRows]) -> None:
    """Mark the buckets of requests, in the transaction that writes them."""
    marks = marks_of(several)
    if marks:
        dialects.of(connection.engine).inserting(connection.engine, MARKS)(connection, marks)


def mark_instants(connection: Connection, seen: Iterable[tuple[int, str]]) -> None:
    """Mark the buckets of requests in flight, in the transaction that changes their reports.

    Args:
        seen: time of each request's last report (unix nanoseconds), and its source.
    """
    token = randbits(63)
    marks = {
        # Use the bucket's end, so that the evaluator reads no requests of earlier buckets.
        Mark(token, until_s := -(-at_unix_ns // _STEP_NS) * STEP_S, source, until_s * SECOND_NS)
        for at_unix_ns, source in seen
    }
    if marks:
        inserting = dialects.of(connection.engine).inserting
        inserting(connection.engine, MARKS)(connection, sorted(marks))


def read_marks(engine: Engine, transactions: int, from_s: int | None = None) -> list[Mark]:
    """Return the marks of up to `transactions` transactions, for buckets that end at or after
    `from_s`."""
    wanted = true() if from_s is None else MARKS.c.until_unix_s >= from_s
    tokens = select(MARKS.c.token).where(wanted).distinct().limit(transactions)
    columns = [MARKS.c[name] for name in Mark._fields]
    with reading(engine) as connection:
        rows = connection.execute(select(*columns).where(MARKS.c.token.in_(tokens), wanted))
        return [Mark(*row) for row in rows]


def remove_marks(connection: Connection, marks: Sequence[Mark]) -> None:
    """Delete these marks, and other marks of the same transactions. Marks before the earliest
    bucket in `marks` are kept."""
    if not marks:
        return
    tokens = sorted({each.token for each in marks})
    later = MARKS.c.until_unix_s >= min(each.until_unix_s for each in marks)
    for first in range(0, len(tokens), _AT_ONCE):
        some = and_(MARKS.c.token.in_(tokens[first : first + _AT_ONCE]), later)
        dialects.of(connection.engine).remove(connection, MARKS, some)
