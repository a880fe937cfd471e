"""Store the newest report of each request in flight, until the request's row arrives.

The same transaction also marks the time steps to count again (`store.alerting.slo_marks`). If a
report arrives after the row, it is ignored, and retention deletes it. If a server ends without
sending rows, its requests are counted from their last reports.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    and_,
    func,
    or_,
    select,
    true,
    tuple_,
)

from store import dialects
from store.alerting.slo_marks import mark_instants
from store.connections import reading
from store.requests.best_source import not_of_the_prober
from store.schema import IN_FLIGHT, REQUEST_KEY, REQUESTS, arrow_type
from telemetry.in_flight import REPORTED_FROM_S, InFlightRequest
from telemetry.request_rows import PLACE, RequestRows

AT_ONCE: Final = 500

ROWS: Final = 50_000

_TRACE, _SPAN, _E2E = PLACE["trace_id"], PLACE["span_id"], PLACE["e2e_s"]
_Key = tuple[str, str]


def store_reports(connection: Connection, reports: Sequence[Mapping[str, Any]]) -> None:
    """Store reports. They replace older reports of the same requests."""
    newest: dict[_Key, Mapping[str, Any]] = {}
    for report in sorted(reports, key=lambda each: int(each["seen_unix_ns"])):
        newest[report["span_id"], report["trace_id"]] = report
    known = {key: (seen, source) for key, seen, source in _stored_reports(connection, newest)}
    later = {
        key: report
        for key, report in sorted(newest.items())  # sorted, so that two writers do not deadlock
        if key not in known or known[key][0] < report["seen_unix_ns"]
    }
    if later:
        dialects.of(connection.engine).upsert(connection, IN_FLIGHT, list(later.values()))
        moved = [known[key] for key in later if key in known]
        mark_instants(
            connection, [*moved, *((r["seen_unix_ns"], r["source"]) for r in later.values())]
        )


def remove_ended(connection: Connection, several: Iterable[RequestRows]) -> None:
    """Remove the reports of requests whose rows are written in the same transaction."""
    ended = {
        (row[_SPAN], row[_TRACE])
        for requests in several
        for row in requests.rows
        if row[_E2E] >= REPORTED_FROM_S  # shorter requests have no report
    }
    if not ended:
        return
    found = list(_stored_reports(connection, ended))
    if found:
        gone = [key for key, _, _ in found]
        columns = tuple_(IN_FLIGHT.c.span_id, IN_FLIGHT.c.trace_id)
        for some in _batches(gone):
            dialects.of(connection.engine).remove(connection, IN_FLIGHT, columns.in_(some))
        mark_instants(connection, [(seen, source) for _, seen, source in found])


def in_flight_tables(
    engine: Engine, columns: Sequence[str], from_unix_ns: int, to_unix_ns: int
) -> Iterator[pa.Table]:
    """Yield the requests in flight with a last report in (from, to], `ROWS` at a time.

    If a request's row arrives during the query, the request may be missing here and also in the
    rows that the caller read. The next evaluation counts the request.
    """
    report = IN_FLIGHT.c
    wanted = [report[name] for name in (*columns, *REQUEST_KEY)]
    statement = (
        select(*wanted)
        .where(
            report.seen_unix_ns > from_unix_ns,
            report.seen_unix_ns <= to_unix_ns,
            not_of_the_prober(report.tenant),
        )
        .order_by(report.span_id, report.trace_id)
        .limit(ROWS)
    )
    after: ColumnElement[bool] = true()
    while True:
        with reading(engine) as connection:
            rows = [tuple(row) for row in connection.execute(statement.where(after))]
            ended = _with_row(connection, [row[len(columns) :] for row in rows])
        left = [row for row in rows if row[len(columns) :] not in ended]
        yield pa.table(
            {
                name: pa.array([row[place] for row in left], arrow_type(name, InFlightRequest))
                for place, name in enumerate(columns)
            }
        )
        if len(rows) < ROWS:
            return
        _, trace_id, span_id = rows[-1][len(columns) :]
        after = or_(
            report.span_id > span_id,
            and_(report.span_id == span_id, report.trace_id > trace_id),
        )


def _with_row(connection: Connection, keys: Sequence[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    columns = [REQUESTS.c[name] for name in REQUEST_KEY]
    found: set[tuple[Any, ...]] = set()
    for some in _batches(keys):
        rows = connection.execute(select(*columns).where(tuple_(*columns).in_(some)))
        found.update(tuple(row) for row in rows)
    return found


def oldest_seen_unix_ns(engine: Engine) -> int | None:
    """Time of the earliest stored report, or None."""
    with reading(engine) as connection:
        oldest: int | None = connection.scalar(select(func.min(IN_FLIGHT.c.seen_unix_ns)))
    return oldest


def _stored_reports(
    connection: Connection, keys: Iterable[_Key]
) -> Iterator[tuple[_Key, int, str]]:
    wanted = set(keys)
    span: Column[str] = IN_FLIGHT.c.span_id
    columns = (span, IN_FLIGHT.c.trace_id, IN_FLIGHT.c.seen_unix_ns, IN_FLIGHT.c.source)
    for some in _batches(sorted({span_id for span_id, _ in wanted})):
        for row in connection.execute(select(*columns).where(span.in_(some))).all():
            if (row[0], row[1]) in wanted:
                yield (row[0], row[1]), row[2], row[3]


def _batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(values), AT_ONCE):
        yield values[first : first + AT_ONCE]
