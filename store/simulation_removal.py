"""Deletes a simulation: its rows, counts and incidents, and nothing of a real server.

A simulation includes the hour before it began, so two of them in one database would report that
hour twice. An old simulation is also of no use beside a real server.
"""

from sqlalchemy import Engine, true

from store import dialects
from store.alerting.incidents import remove_simulated
from store.alerting.notifications import remove_notifications
from store.alerting.slo_counts import remove_simulated_counts
from store.connections import writing
from store.rollups.sample_tables import KINDS
from store.rollups.tables import BINS, ROLLUPS
from store.schema import GPUS, IN_FLIGHT, REQUESTS, SAMPLES, STARTS
from telemetry.requests import Source


def delete_simulation(engine: Engine) -> int:
    """Delete simulated requests (in flight, too), samples (of GPUs, too) and starts, with what was
    made of them.

    Marks stay: a step of which the simulated requests are gone is counted again from the rest.

    Returns: how many rows there were.

    Raises: StoreUnavailable where the database cannot be written.
    """
    remove = dialects.of(engine).remove
    with writing(engine) as connection:
        requests = remove(connection, REQUESTS, REQUESTS.c.source == Source.SIMULATOR.value)
        requests += remove(connection, IN_FLIGHT, IN_FLIGHT.c.source == Source.SIMULATOR.value)
        samples = remove(connection, SAMPLES, SAMPLES.c.simulated == true())
        starts = remove(connection, STARTS, STARTS.c.simulated == true())
        gpus = remove(connection, GPUS, GPUS.c.simulated == true())
        for table in (ROLLUPS, BINS, *(kind.kept for kind in KINDS)):
            remove(connection, table, table.c.simulated == true())
        remove_simulated_counts(connection)
        for incident in remove_simulated(connection):
            remove_notifications(connection, incident)
    return requests + samples + starts + gpus
