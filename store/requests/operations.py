"""Query operations of applications by trace id, and of routers by response id."""

from collections import defaultdict
from collections.abc import Collection, Set
from typing import Any, Final

from sqlalchemy import Engine, Select, select

from store.connections import reading
from store.queries import BATCH_ROWS
from store.requests.best_source import NEAR_NS
from store.schema import OPERATIONS
from telemetry.application_operations import MAX_PER_TRACE, ApplicationOperation, Operation
from telemetry.window import Window

MAX_IN_SQL: Final = 100
"""Maximum number of ids in SQL. For more ids, this process filters all operations of the time
range."""


def operations_of(
    engine: Engine,
    window: Window,
    trace_ids: Collection[str],
    only: Operation | None = None,
) -> dict[str, list[ApplicationOperation]]:
    """The operations of some traces, unordered, at most `MAX_PER_TRACE` per trace. `window` is the
    window of the requests."""
    if not trace_ids:
        return {}
    wanted = set(trace_ids)
    statement = _operations_near(window)
    if len(wanted) <= MAX_IN_SQL:
        statement = statement.where(OPERATIONS.c.trace_id.in_(sorted(wanted)))
    if only is not None:
        statement = statement.where(OPERATIONS.c.operation == only.value)
    return _rows_by_key(engine, statement, wanted, "trace_id")


def routers_of(
    engine: Engine, window: Window, response_ids: Collection[str]
) -> dict[str, list[ApplicationOperation]]:
    """Map the id of each response to the routers' reports about this response, unordered."""
    if not response_ids:
        return {}
    statement = _operations_near(window).where(
        OPERATIONS.c.operation == Operation.ROUTER.value, OPERATIONS.c.response_id.is_not(None)
    )
    if len(response_ids) <= MAX_IN_SQL:
        statement = statement.where(OPERATIONS.c.response_id.in_(sorted(response_ids)))
    return _rows_by_key(engine, statement, set(response_ids), "response_id")


def _operations_near(window: Window) -> Select[Any]:
    return select(*OPERATIONS.columns).where(
        OPERATIONS.c.at_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        OPERATIONS.c.at_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
    )


def _rows_by_key(
    engine: Engine, statement: Select[Any], wanted: Set[str], key: str
) -> dict[str, list[ApplicationOperation]]:
    found: defaultdict[str, list[ApplicationOperation]] = defaultdict(list)
    with reading(engine) as connection:
        rows = connection.execution_options(yield_per=BATCH_ROWS).execute(statement)
        for row in rows.mappings():
            of_key = found[row[key]] if row[key] in wanted else None
            if of_key is not None and len(of_key) < MAX_PER_TRACE:
                operation = Operation(row["operation"])
                of_key.append(ApplicationOperation(**{**row, "operation": operation}))
    return found
