"""Delete an earlier simulation before a new simulation starts, because a new simulation also
creates data for the past."""

from sqlalchemy import Connection, Engine, true

from store import dialects
from store.alerting.incident_answers import remove_answers
from store.alerting.incidents import remove_simulated
from store.alerting.notifications import remove_notifications
from store.alerting.slo_counts import remove_simulated_counts
from store.connections import writing
from store.predictions import PREDICTIONS
from store.rollups.sample_tables import KINDS
from store.rollups.tables import BINS, ROLLUPS
from store.schema import COLD_STARTS, GPUS, IN_FLIGHT, OPERATIONS, REQUESTS, SAMPLES, STARTS
from store.state import state_of
from telemetry.requests import Source


def delete_simulation(engine: Engine) -> int:
    """Delete all simulated rows, and the rollups, counts, incidents and predictions made from them.

    After an interruption, the next call deletes the rest. Marks are kept, so that the requests of
    objectives are counted again. Return the number of deleted rows.
    """
    remove = dialects.of(engine).remove
    state = state_of(engine)
    with writing(engine) as connection:
        requests = remove(connection, REQUESTS, REQUESTS.c.source == Source.SIMULATOR.value)
        requests += remove(connection, IN_FLIGHT, IN_FLIGHT.c.source == Source.SIMULATOR.value)
        operations = remove(connection, OPERATIONS, OPERATIONS.c.simulated == true())
        samples = remove(connection, SAMPLES, SAMPLES.c.simulated == true())
        starts = remove(connection, STARTS, STARTS.c.simulated == true())
        starts += remove(connection, COLD_STARTS, COLD_STARTS.c.simulated == true())
        gpus = remove(connection, GPUS, GPUS.c.simulated == true())
        for table in (ROLLUPS, BINS, *(kind.rollups for kind in KINDS)):
            remove(connection, table, table.c.simulated == true())
        if state is engine:
            _delete_state(connection)
    if state is not engine:
        with writing(state) as connection:
            _delete_state(connection)
    return requests + operations + samples + starts + gpus


def _delete_state(connection: Connection) -> None:
    simulated = PREDICTIONS.c.simulated == true()
    dialects.of(connection.engine).remove(connection, PREDICTIONS, simulated)
    remove_simulated_counts(connection)
    for incident in remove_simulated(connection):
        remove_notifications(connection, incident)
        remove_answers(connection, incident)
