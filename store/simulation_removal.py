"""Delete the rows, counts and incidents of a simulation. Data of real servers is not changed.

A simulation also covers the time before its start, so two simulations in one database would report
the same time twice. Once a real server sends data, an old simulation is useless.
"""

from sqlalchemy import Engine, true

from store import dialects
from store.alerting.incidents import remove_simulated
from store.alerting.notifications import remove_notifications
from store.alerting.slo_counts import remove_simulated_counts
from store.connections import writing
from store.predictions import PREDICTIONS
from store.rollups.sample_tables import KINDS
from store.rollups.tables import BINS, ROLLUPS
from store.schema import COLD_STARTS, GPUS, IN_FLIGHT, OPERATIONS, REQUESTS, SAMPLES, STARTS
from telemetry.requests import Source


def delete_simulation(engine: Engine) -> int:
    """Delete all simulated rows, and the rollups, counts, incidents and predictions
    computed from them.

    The rows are requests, requests in flight, operations of applications, engine samples, GPU
    samples, engine starts and their parts. Marks are kept, so that the affected steps are counted
    again without the deleted requests.

    Returns: the number of deleted rows.

    Raises: StoreUnavailable: the database cannot be written.
    """
    remove = dialects.of(engine).remove
    with writing(engine) as connection:
        requests = remove(connection, REQUESTS, REQUESTS.c.source == Source.SIMULATOR.value)
        requests += remove(connection, IN_FLIGHT, IN_FLIGHT.c.source == Source.SIMULATOR.value)
        operations = remove(connection, OPERATIONS, OPERATIONS.c.simulated == true())
        samples = remove(connection, SAMPLES, SAMPLES.c.simulated == true())
        starts = remove(connection, STARTS, STARTS.c.simulated == true())
        starts += remove(connection, COLD_STARTS, COLD_STARTS.c.simulated == true())
        gpus = remove(connection, GPUS, GPUS.c.simulated == true())
        for table in (ROLLUPS, BINS, PREDICTIONS, *(kind.kept for kind in KINDS)):
            remove(connection, table, table.c.simulated == true())
        remove_simulated_counts(connection)
        for incident in remove_simulated(connection):
            remove_notifications(connection, incident)
    return requests + operations + samples + starts + gpus
