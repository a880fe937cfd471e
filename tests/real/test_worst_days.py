import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import func, select

from rig.postgresql import PostgreSQL
from rig.sender import Senders
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.rollups.queries import rollups
from store.schema import REQUESTS
from telemetry.window import Window
from tests.real.conftest import SPANS_A_MESSAGE, Start

pytestmark = pytest.mark.real

OUTAGE_S = float(os.environ.get("WORST_OUTAGE_S", "8"))
KILLS = int(os.environ.get("WORST_KILLS", "8"))
"""Number of kills. Before a release, run `WORST_OUTAGE_S=20 WORST_KILLS=20 make test-real`."""

_log = logging.getLogger(__name__)


def kept(database_url: str) -> dict[str, int]:
    engine = open_database(database_url, create=False)
    try:
        with engine.connect() as connection:
            rows = connection.execute(
                select(REQUESTS.c.trace_id, func.count()).group_by(REQUESTS.c.trace_id)
            )
            return dict(rows.all())
    finally:
        engine.dispose()


def rolled_up(database_url: str, *, at_rest: bool) -> int:
    """Return the number of requests in the rollups, after all pending rollups are built."""
    engine = open_database(database_url, create=False)
    try:
        build_marked(engine, int(time.time()) + 7_200)
        found = rollups(engine, Window(0, 2**62))
        assert found is not None
        assert found.plan.requests == [] or not at_rest
        return found.number()
    finally:
        engine.dispose()


def wait_for_more(senders: Senders, messages: int, patience_s: float = 60) -> None:
    wanted = len(senders.acknowledged) + messages * SPANS_A_MESSAGE
    deadline = time.monotonic() + patience_s
    while len(senders.acknowledged) < wanted:
        assert time.monotonic() < deadline, senders.answers
        time.sleep(0.02)


@pytest.mark.timeout(300)
def test_postgresql_may_be_unavailable_under_load(
    postgresql: PostgreSQL,
    starting: Callable[[str], Start],
    message: Callable[[], ExportTraceServiceRequest],
) -> None:
    url = postgresql.url()
    start = starting(url)
    collector = start()
    with Senders(message, collector.port("http"), collector.port("grpc")) as senders:
        wait_for_more(senders, 50)
        postgresql.stop("immediate")
        try:
            before = dict(senders.answers)
            time.sleep(OUTAGE_S)
            during = senders.answers - type(senders.answers)(before)
        finally:
            postgresql.start()
        wait_for_more(senders, 200)
    assert collector.ends(SIGTERM) == 0, collector.printed
    assert during["503"] > OUTAGE_S / 2
    assert during["UNAVAILABLE"] > OUTAGE_S / 2
    assert not senders.without_delay
    assert set(senders.answers) <= {"200", "OK", "503", "UNAVAILABLE"}
    rows = kept(url)
    assert senders.acknowledged <= set(rows)
    assert set(rows.values()) == {1}
    _log.info("%s; %d spans acknowledged", dict(senders.answers), len(senders.acknowledged))


@pytest.mark.timeout(400)
def test_a_repeatedly_killed_collector_keeps_acknowledged_rows(
    tmp_path: Path,
    starting: Callable[[str], Start],
    message: Callable[[], ExportTraceServiceRequest],
) -> None:
    moments = random.Random(4)
    url = f"sqlite:///{tmp_path}/tailspan.db"
    start = starting(url)
    collector = start()
    with Senders(message, collector.port("http"), collector.port("grpc")) as senders:
        for _ in range(KILLS):
            wait_for_more(senders, 5)
            time.sleep(moments.uniform(0, 0.3))
            assert collector.ends(SIGKILL) == -SIGKILL
            collector = start()
            rows = kept(url)
            assert set(rows.values()) == {1}
            # Rollups are built under load after a kill, so the next kill finds more of them.
            assert rolled_up(url, at_rest=False) >= len(rows)
        wait_for_more(senders, 20)
    assert collector.ends(SIGTERM) == 0, collector.printed
    rows = kept(url)
    assert senders.acknowledged <= set(rows)
    assert set(rows.values()) == {1}
    assert rolled_up(url, at_rest=True) == len(rows)
    _log.info("%s; %d spans acknowledged", dict(senders.answers), len(senders.acknowledged))
