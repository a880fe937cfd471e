"""Tests of an upgrade and a downgrade while requests arrive: two versions use one database.

The newer version is a copy of the code with one more column for requests and samples. Any running
collector receives the traffic, which is of past minutes. Afterwards each acknowledged row must be
stored once, and rollups and bills must equal those that are computed again from all rows.
"""

import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Final

import pytest
import requests
from opentelemetry.sdk.resources import Resource
from sqlalchemy import delete, func, select
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.encoder import encode
from tailspan_vllm.otlp.engine_metrics import encode_samples
from tailspan_vllm.otlp.request_span import span_of

from benchmarks._collector_traffic import record
from collector.gpus.otlp_message import message as gpu_message
from rig.postgresql import PostgreSQL
from rig.program import PATIENCE_S, Tailspan, tailspan_command
from rig.prometheus_stack import wait_for
from store import migrations
from store.connections import writing
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.rollups.buckets import nearest_ranks
from store.rollups.marks import SAMPLE_ROLLUPS, begin
from store.rollups.queries import rollups
from store.rollups.sample_tables import DEVICES, ENGINES
from store.rollups.tables import BINS, MARKS, MINUTE_S, ROLLUPS, STATE
from store.schema import GPUS, REQUESTS, SAMPLES
from telemetry.gpus import GpuSample, GpuSource
from telemetry.window import Window

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).parents[2]
PAST_S: Final = 3_600
"""The traffic begins this long before the test."""
REPLICA: Final = "vllm-0"
SECONDS_PER_STAGE: Final = 120
"""Seconds of traffic between two changes of a collector. They are sent faster than real time."""
AT_ONCE_S: Final = 10
"""Seconds of traffic per message."""

REVISION: Final = """\
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None

def upgrade():
    for table in ("engine_samples", "requests"):
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("colour", sa.Text()))
    op.create_table("colours", sa.Column("name", sa.Text(), primary_key=True))
"""
FIELD: Final = """\
    colour: Annotated[str | None, column("", "A colour.", "nothing")] = None
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("newer")
    for package in ROOT.iterdir():
        if (
            package.is_dir()
            and package.name[0] != "."
            and package.name not in ("docs", "tests", "var")
        ):
            shutil.copytree(package, folder / package.name)
    revision = REVISION.format(head=migrations.head())
    (folder / "store/migrations/versions/9999_colours.py").write_text(revision)
    for path in ("telemetry/requests.py", "telemetry/engines.py"):
        module = folder / path
        before, found, after = module.read_text().partition("    clock_ahead_s: Annotated[")
        assert found
        module.write_text(before + FIELD + found + after)
    return folder


class Traffic:
    """A thread that sends traffic second by second. Each second's traffic goes to any running
    collector."""

    def __init__(self, *running: Tailspan) -> None:
        self.from_s = (int(time.time()) - PAST_S) // MINUTE_S * MINUTE_S
        self.seconds = 0
        """The number of seconds whose traffic was acknowledged."""
        self.traces: set[str] = set()
        self.running = list(running)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Wait until the traffic of a stage is acknowledged."""
        wanted = self.seconds + SECONDS_PER_STAGE
        wait_for("more traffic", lambda: self.seconds >= wanted, PATIENCE_S)

    def _run(self) -> None:
        chance = random.Random(1)
        resource = Resource(
            {
                names.SERVICE_NAME: "vllm",
                names.SERVICE_INSTANCE_ID: REPLICA,
                names.PROCESS_PID: 4242,
            }
        )
        with requests.Session() as session:
            session.trust_env = False
            while not self._stop.wait(0.1):
                seconds = range(self.seconds, self.seconds + AT_ONCE_S)
                records = [record(chance, "chat", 0.1) for _ in seconds]
                now_ns = time.time_ns()
                spans = [
                    replace(each, wall_offset_ns=each.wall_offset_ns + self._at_ns(second) - now_ns)
                    for each, second in zip(records, seconds, strict=True)
                ]
                self._send(
                    *(session, chance, "traces"),
                    bytes(encode([span_of(each, resource) for each in spans])),
                )
                self._send(session, chance, "metrics", self._engine_samples(seconds, resource))
                self._send(session, chance, "metrics", self._gpu_samples(seconds))
                self.traces.update(f"{each.trace_id:032x}" for each in records)
                self.seconds += AT_ONCE_S

    def _at_ns(self, second: int) -> int:
        # Requests end at this time. With the added second, also the first request is received after
        # `from_s`.
        return (self.from_s + 1 + second) * 10**9

    def _engine_samples(self, seconds: range, resource: Resource) -> bytes:
        samples = []
        for second in seconds:
            state = EngineState(engine=0, started_unix_ns=self._at_ns(0), model="chat", config="c")
            state.totals = {names.BUSY_TIME: 0.7 * second, names.STEPS: 40 * second}
            samples.append(EngineStateSample(self._at_ns(second), state.snapshot({}, {})))
        return encode_samples(samples, resource)

    def _gpu_samples(self, seconds: range) -> bytes:
        return gpu_message(
            [
                GpuSample(
                    replica=REPLICA,
                    gpu="GPU-0",
                    at_unix_ns=self._at_ns(second),
                    source=GpuSource.NVML,
                    model_name="NVIDIA H100 80GB HBM3",
                    energy_j_total=500.0 * second,
                )
                for second in seconds
            ]
        )

    def _send(
        self, session: requests.Session, chance: random.Random, signal: str, body: bytes
    ) -> None:
        while True:
            url = f"{chance.choice(self.running).address('http')}/v1/{signal}"
            headers = {"Content-Type": "application/x-protobuf"}
            try:
                if session.post(url, body, headers=headers, timeout=5).status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path, newer: Path) -> Iterator[Callable[[str, str], Tailspan]]:
    """Return a function that starts the "old" or the "new" version on a database."""
    with ExitStack() as running:

        def begin(version: str, url: str) -> Tailspan:
            environ = {"PYTHONPATH": str(newer)} if version == "new" else {}
            words = ("up", "--no-explorer", "--gpus=off", f"--database={url}")
            program = Tailspan(tmp_path, *words, environ=environ)
            return running.enter_context(program).is_up()

        yield begin


def bill(url: str, folder: Path, traffic: Traffic) -> list[dict[str, Any]]:
    until_s = traffic.from_s + traffic.seconds // MINUTE_S * MINUTE_S
    words = ("cost", "--by", "model", "--from", f"{traffic.from_s}", "--to", f"{until_s}")
    done = subprocess.run(
        tailspan_command(*words, "--database", url, "--format", "json"),
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rolled_up(url: str, traffic: Traffic) -> dict[str, Any]:
    engine = open_database(url, create=False)
    build_marked(engine, int(time.time()) + 7_200)
    window = Window(traffic.from_s * 10**9, (traffic.from_s + PAST_S) * 10**9)
    found = rollups(engine, window, by=("replica",), step_s=MINUTE_S)
    assert found is not None
    assert found.plan.requests == []
    sums, ttft_s = found.sums(("e2e_s",)), found.quantiles("ttft_s", nearest_ranks((0.5, 0.99)))
    engine.dispose()
    return {
        "requests": sums.requests.tolist(),
        "e2e_s": sums.facts["e2e_s"][:, 1].round(6).tolist(),
        "ttft_s": ttft_s.value_s[~(ttft_s.value_s != ttft_s.value_s)].tolist(),
    }


def roll_up_anew(url: str) -> None:
    """Delete all rollups, so that the next query computes them from all rows."""
    engine = open_database(url, create=False)
    tables = [
        ROLLUPS,
        BINS,
        MARKS,
        STATE,
        ENGINES.rollups,
        DEVICES.rollups,
        SAMPLE_ROLLUPS.marks,
        SAMPLE_ROLLUPS.state,
    ]
    with writing(engine) as connection:
        for table in tables:
            connection.execute(delete(table))
    begin(engine)
    engine.dispose()


def check(url: str, folder: Path, traffic: Traffic) -> None:
    engine = open_database(url, create=False)
    with engine.connect() as connection:
        stored = list(connection.scalars(select(REQUESTS.c.trace_id)))
        for table in (SAMPLES, GPUS):
            number = connection.scalar(select(func.count()).select_from(table))
            assert number == traffic.seconds, table.name
    engine.dispose()
    assert len(stored) == len(set(stored))
    assert set(stored) == traffic.traces
    found, billed = rolled_up(url, traffic), bill(url, folder, traffic)
    assert sum(found["requests"]) == len(traffic.traces)
    assert billed
    roll_up_anew(url)
    assert rolled_up(url, traffic) == found
    assert rounded(bill(url, folder, traffic)) == rounded(billed)


def rounded(value: Any) -> Any:
    """Round numbers, because sums over different spans of time differ in the last digits."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def test_collectors_are_replaced_one_after_another_and_back(
    tmp_path: Path, postgresql: PostgreSQL, start: Callable[[str, str], Tailspan]
) -> None:
    url = postgresql.new_url()
    first, second = start("old", url), start("old", url)
    with Traffic(first, second) as traffic:
        traffic.goes_on()
        third = start("new", url)
        assert "to 9999. The data is kept" in third.printed
        traffic.running = [first, second, third]
        traffic.goes_on()
        first.process.send_signal(SIGKILL)
        first = start("old", url)  # an orchestrator restarts the old version before it is replaced
        assert "upgraded to schema 9999 by a newer Tailspan. This version" in first.printed
        traffic.running = [first, second, third]
        traffic.goes_on()
        traffic.running = [third]
        for each in (first, second):
            assert each.ends(SIGTERM) == 0, each.printed
        traffic.goes_on()
        first = start("old", url)
        traffic.running = [first, third]
        traffic.goes_on()
        traffic.running = [first]
        assert third.ends(SIGTERM) == 0, third.printed
        traffic.goes_on()
    assert first.ends(SIGTERM) == 0, first.printed
    check(url, tmp_path, traffic)


def test_an_upgrade_of_one_collector_is_undone(
    tmp_path: Path, start: Callable[[str, str], Tailspan]
) -> None:
    url = f"sqlite:///{tmp_path}/tailspan.db"
    program = start("old", url)
    with Traffic(program) as traffic:
        traffic.goes_on()
        for version in ("new", "old"):
            assert program.ends(SIGTERM) == 0, program.printed
            program = start(version, url)
            traffic.running = [program]
            traffic.goes_on()
    assert program.ends(SIGTERM) == 0, program.printed
    check(url, tmp_path, traffic)
