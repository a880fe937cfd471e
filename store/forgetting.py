"""Forgetting what no real server said.

A simulation tells of the hour before it began, so two of them in one database would tell the
same hour twice; and nobody wants yesterday's simulation beside today's server.
"""

from sqlalchemy import Engine, delete
from sqlalchemy.exc import DBAPIError

from store.errors import StoreUnavailable
from store.incidents import forget_incidents
from store.schema import REQUESTS, SAMPLES
from store.slo_counts import forget_counts
from telemetry.requests import Source


def forget_simulated(engine: Engine) -> int:
    """Delete simulated requests and samples.

    Returns: how many rows there were.

    Raises: StoreUnavailable where the database cannot be written.
    """
    try:
        with engine.begin() as connection:
            requests = connection.execute(
                delete(REQUESTS).where(REQUESTS.c.source == Source.SIMULATOR.value)
            )
            samples = connection.execute(delete(SAMPLES).where(SAMPLES.c.simulated))
        if requests.rowcount:
            # Counts and incidents were of these requests too: what is real is counted again.
            forget_counts(engine)
            forget_incidents(engine)
    except DBAPIError as error:
        raise StoreUnavailable(f"the database cannot be written: {error.orig}") from error
    return requests.rowcount + samples.rowcount
