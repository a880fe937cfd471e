"""Count the replicas with samples that were scraped from `/metrics`."""

from sqlalchemy import Engine, func, select

from store.connections import reading
from store.schema import SAMPLES
from telemetry.requests import Source
from telemetry.window import Window


def scraped_replicas(engine: Engine, window: Window) -> int:
    """The number of replicas with scraped samples in a window."""
    statement = select(func.count(SAMPLES.c.replica.distinct())).where(
        SAMPLES.c.at_unix_ns >= window.from_unix_ns,
        SAMPLES.c.at_unix_ns < window.to_unix_ns,
        SAMPLES.c.source == Source.SCRAPE.value,
    )
    with reading(engine) as connection:
        return connection.scalar(statement) or 0
