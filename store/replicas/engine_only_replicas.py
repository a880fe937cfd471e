"""Find the replicas whose requests were measured only in the engine core, without a front end."""

from sqlalchemy import Engine, select

from store.connections import reading
from store.schema import REQUESTS
from telemetry.requests import Basis, Source
from telemetry.window import Window


def engine_only_replicas(engine: Engine, window: Window) -> list[str]:
    """Sorted names of replicas with requests that only the engine core measured. One cause is
    vLLM's Rust front end, because it loads no plugins."""
    row = REQUESTS.c
    statement = (
        select(row.replica)
        .distinct()
        .where(
            row.received_unix_ns >= window.from_unix_ns,
            row.received_unix_ns < window.to_unix_ns,
            row.source == Source.INSTRUMENTATION.value,
            row.basis == Basis.ENGINE.value,
            row.frontend_s.is_(None),
            row.queue_s.is_not(None),
            row.replica.is_not(None),
        )
    )
    with reading(engine) as connection:
        return sorted(connection.scalars(statement))
