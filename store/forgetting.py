"""Forgetting what no real server said.

A simulation tells of the hour before it began, so two of them in one database would tell the
same hour twice; and nobody wants yesterday's simulation beside today's server.
"""

from sqlalchemy import Engine, true

from store import dialects
from store.incidents import forget_incidents
from store.notifications import forget_notifications
from store.reaching import writing
from store.rollup_tables import BINS, ROLLUPS
from store.schema import GPUS, REQUESTS, SAMPLES, STARTS
from store.slo_counts import forget_counts
from store.stretch_tables import KINDS
from telemetry.requests import Source


def forget_simulated(engine: Engine) -> int:
    """Delete simulated requests, samples (of GPUs, too) and starts.

    Returns: how many rows there were.

    Raises: StoreUnavailable where the database cannot be written.
    """
    remove = dialects.of(engine).remove
    with writing(engine) as connection:
        requests = remove(connection, REQUESTS, REQUESTS.c.source == Source.SIMULATOR.value)
        samples = remove(connection, SAMPLES, SAMPLES.c.simulated == true())
        starts = remove(connection, STARTS, STARTS.c.simulated == true())
        gpus = remove(connection, GPUS, GPUS.c.simulated == true())
        for table in (ROLLUPS, BINS, *(kind.kept for kind in KINDS)):
            remove(connection, table, table.c.simulated == true())
    if requests:
        # Counts and incidents were of these requests too: what is real is counted again.
        forget_counts(engine)
        forget_incidents(engine)
        forget_notifications(engine)
    return requests + samples + starts + gpus
