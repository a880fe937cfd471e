"""What was acknowledged is kept once: the database goes away, the collector is killed."""

import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from sqlalchemy import func, select
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of

from rig.ports import free_port
from rig.postgresql import PostgreSQL
from rig.sender import Senders
from store.database import open_database
from store.queries import Window
from store.rollups.building import settle
from store.rollups.queries import rollups
from store.schema import REQUESTS

pytestmark = pytest.mark.real

SPANS_A_MESSAGE = 20
OUTAGE_S = float(os.environ.get("WORST_OUTAGE_S", "8"))
KILLS = int(os.environ.get("WORST_KILLS", "8"))
"""20 each before a release: `WORST_OUTAGE_S=20 WORST_KILLS=20 make test-real`."""

_log = logging.getLogger(__name__)


class Collecting:
    """A `tailspan up` without its pages, on ports that stay the same from start to start."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.grpc_port, self.http_port, self.metrics_port = (free_port() for _ in range(3))
        self.log = folder / "up.log"
        self._folder = folder
        self._environ = {**os.environ, "TAILSPAN_DATABASE_URL": database_url}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it says so."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(Path(sys.executable).with_name("tailspan"), "up", "--no-explorer"),
                    *("--grpc-port", str(self.grpc_port), "--http-port", str(self.http_port)),
                    *("--metrics-port", str(self.metrics_port)),
                ],
                cwd=self._folder,
                env=self._environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 60
        while "Ctrl-C stops it" not in self.log.read_text():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.kill()
        assert self._process.wait(30) == -signal.SIGKILL, self.log.read_text()
        self._process = None

    def stop(self) -> None:
        """As Ctrl-C would."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(30) == 0, self.log.read_text()
            self._process = None

    def clean_up(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Callable[[str], Collecting]]:
    """Makes one for a database; it is gone at the end."""
    made: list[Collecting] = []

    def make(database_url: str) -> Collecting:
        made.append(Collecting(tmp_path, database_url))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture
def message() -> Callable[[], ExportTraceServiceRequest]:
    """Messages of requests that just ended, as the instrumentation sends them."""
    resource = Resource({"service.name": "vllm", "service.instance.id": "a"})
    numbers = itertools.count()

    def make() -> ExportTraceServiceRequest:
        records = [
            RequestRecord(
                received=0.0,
                arrived=0.0,
                delivered=0.5,
                wall_offset_ns=time.time_ns() - 500_000_000,
                outcome="stop",
                basis="edge",
                request_id=f"chatcmpl-{next(numbers)}",
            )
            for _ in range(SPANS_A_MESSAGE)
        ]
        return encode_spans([span_of(record, resource) for record in records])

    return make


def kept(database_url: str) -> dict[str, int]:
    """How often each trace id is in the store."""
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
    """How many requests the rollups have, after making those that are to be made.

    At rest none of them has to be read from its row.
    """
    engine = open_database(database_url, create=False)
    try:
        settle(engine, int(time.time()) + 7_200)
        found = rollups(engine, Window(0, 2**62))
        assert found is not None
        assert found.plan.requests == [] or not at_rest
        return found.number()
    finally:
        engine.dispose()


def wait_for_more(senders: Senders, messages: int, patience_s: float = 60) -> None:
    """Until so many more messages were acknowledged."""
    wanted = len(senders.acknowledged) + messages * SPANS_A_MESSAGE
    deadline = time.monotonic() + patience_s
    while len(senders.acknowledged) < wanted:
        assert time.monotonic() < deadline, senders.answers
        time.sleep(0.02)


@pytest.mark.timeout(300)
def test_postgresql_may_be_away_under_load(
    postgresql: PostgreSQL,
    collecting: Callable[[str], Collecting],
    message: Callable[[], ExportTraceServiceRequest],
) -> None:
    """Senders are told when to come again, by both protocols; it recovers by itself."""
    url = postgresql.url()
    collector = collecting(url)
    collector.start()
    with Senders(message, collector.http_port, collector.grpc_port) as senders:
        wait_for_more(senders, 50)
        postgresql.stop("immediate")
        try:
            before = dict(senders.answers)
            time.sleep(OUTAGE_S)
            during = senders.answers - type(senders.answers)(before)
        finally:
            postgresql.start()
        wait_for_more(senders, 200)
    collector.stop()
    assert during["503"] > OUTAGE_S / 2
    assert during["UNAVAILABLE"] > OUTAGE_S / 2
    assert not senders.without_delay
    assert set(senders.answers) <= {"200", "OK", "503", "UNAVAILABLE"}
    rows = kept(url)
    assert senders.acknowledged <= set(rows)
    assert set(rows.values()) == {1}
    _log.info("%s; %d spans acknowledged", dict(senders.answers), len(senders.acknowledged))


@pytest.mark.timeout(400)
def test_a_collector_killed_again_and_again_under_load_keeps_what_it_acknowledged(
    tmp_path: Path,
    collecting: Callable[[str], Collecting],
    message: Callable[[], ExportTraceServiceRequest],
) -> None:
    """Every span once; what a sender heard nothing of it sends again."""
    moments = random.Random(4)
    url = f"sqlite:///{tmp_path}/tailspan.db"
    collector = collecting(url)
    collector.start()
    with Senders(message, collector.http_port, collector.grpc_port) as senders:
        for _ in range(KILLS):
            wait_for_more(senders, 5)
            time.sleep(moments.uniform(0, 0.3))
            collector.kill()
            collector.start()
            rows = kept(url)
            assert set(rows.values()) == {1}
            # Made beside the load, of what a kill left: the next one finds more to make.
            assert rolled_up(url, at_rest=False) >= len(rows)
        wait_for_more(senders, 20)
    collector.stop()
    rows = kept(url)
    assert senders.acknowledged <= set(rows)
    assert set(rows.values()) == {1}
    assert rolled_up(url, at_rest=True) == len(rows)
    _log.info("%s; %d spans acknowledged", dict(senders.answers), len(senders.acknowledged))
