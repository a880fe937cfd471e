"""Query the operations of applications, by trace."""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from sqlalchemy import Engine, select

from store.connections import reading
from store.queries import BATCH_ROWS, Window
from store.requests.best_source import NEAR_NS
from store.schema import OPERATIONS
from telemetry.application_operations import MOST_PER_TRACE, ApplicationOperation, Operation

MOST_IN_SQL: Final = 100
"""Maximum number of traces that the database selects. The question about one request then receives
few of the operations of its time range. The traces of a whole range are selected here."""


def operations_of(
    engine: Engine,
    window: Window,
    trace_ids: Collection[str],
    only: Operation | None = None,
) -> dict[str, list[ApplicationOperation]]:
    """Return the operations of some traces, unordered, at most `MOST_PER_TRACE` of each.

    Args:
        engine: from `open_database`.
        window: the window of the requests. Operations are searched in it, and shortly before and
            after it.
        trace_ids: the traces.
        only: the operation to return, or None for all.
    """
    if not trace_ids:
        return {}
    wanted = set(trace_ids)
    statement = select(*OPERATIONS.columns).where(
        OPERATIONS.c.at_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        OPERATIONS.c.at_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
    )
    if len(wanted) <= MOST_IN_SQL:
        statement = statement.where(OPERATIONS.c.trace_id.in_(sorted(wanted)))
    if only is not None:
        statement = statement.where(OPERATIONS.c.operation == only.value)
    found: defaultdict[str, list[ApplicationOperation]] = defaultdict(list)
    with reading(engine) as connection:
        rows = connection.execution_options(yield_per=BATCH_ROWS).execute(statement)
        for row in rows.mappings():
            of_trace = found[row["trace_id"]] if row["trace_id"] in wanted else None
            if of_trace is not None and len(of_trace) < MOST_PER_TRACE:
                operation = Operation(row["operation"])
                of_trace.append(ApplicationOperation(**{**row, "operation": operation}))
    return found
