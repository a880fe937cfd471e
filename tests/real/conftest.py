"""Fixtures: real vLLM servers on the CPU, and Tailspan, each in a separate process."""

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from rig import install, serve
from rig.load import Call, Timed, send_all
from rig.ports import free_port
from rig.program import Program, Tailspan, tailspan_command
from telemetry.cold_starts import PARTS
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, QUEUE_PARTS, Source

Row = dict[str, Any]
Start = Callable[[], Tailspan]

SPANS_A_MESSAGE = 20

TARGETS = "targets.json"
"""The file of scrape targets in Tailspan's folder; empty unless a test writes it."""

SHARED = ("crowded", "vllm")
"""Fixtures of servers that several test files share, in the order in which their tests run."""


class Watching(Tailspan):
    """A running `tailspan up`, and the commands that read its database."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the same folder, which contains the database."""
        return subprocess.run(
            tailspan_command(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def rows(self, wanted: set[str], patience_s: float = 20) -> dict[str, Row]:
        """Wait until these traces are stored, and return their printed rows by trace id."""
        self.wait_for_rows(wanted, patience_s)
        done = self.run("requests", "--last", "1h", "--format", "json")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {row["trace_id"]: row for row in rows if row["trace_id"] in wanted}

    def wait_for_rows(self, wanted: set[str], patience_s: float = 20, source: str = "%") -> None:
        """Wait until these traces are stored, or until a timeout.

        This method queries the database itself, which takes less CPU time than running a command
        for each attempt.
        """
        statement = "SELECT trace_id FROM requests WHERE source LIKE ?"
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            found = {row["trace_id"] for row in self.query(statement, source)}
            if wanted <= found:
                return
            time.sleep(0.2)

    def query(self, statement: str, *values: Any) -> list[Row]:
        file = f"file:{self.folder}/var/tailspan.db?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(statement, values)]

    def stored(self, seen: Iterable[Timed]) -> dict[str, Row]:
        """Wait for these requests, and return all columns by trace id, from the best source."""
        wanted = {timed.trace_id for timed in seen}
        self.wait_for_rows(wanted, source=Source.INSTRUMENTATION.value)
        rows = self.query("SELECT * FROM requests ORDER BY source = 'instrumentation'")
        return {row["trace_id"]: row for row in rows if row["trace_id"] in wanted}

    def starts(self, server: "Vllm", number: int = 1) -> list[Row]:
        """Return the stored starts of a server, when there are at least this many."""
        calls = [Call(chat=False, prompt="begin", max_tokens=4)] * 8
        deadline = time.monotonic() + 30
        statement = "SELECT * FROM cold_starts WHERE replica = ? ORDER BY engine"
        while True:
            found = self.query(statement, f"vllm-{server.port}")
            if len(found) >= number or time.monotonic() > deadline:
                return found
            send_all(server.port, calls, concurrency=8)
            time.sleep(0.5)

    def samples(self, replica: str) -> list[Row]:
        statement = "SELECT * FROM engine_samples WHERE replica = ? ORDER BY at_unix_ns"
        return self.query(statement, replica)

    def metrics(self) -> str:
        return get(f"{self.address('metrics')}/metrics")


class Vllm(Program):
    def __init__(
        self,
        folder: Path,
        endpoint: str,
        *arguments: str,
        model: Path | None = None,
        **environ: str,
    ) -> None:
        """Start a server.

        Args:
            folder: for the server's log.
            endpoint: where the server sends its telemetry.
            arguments: for vLLM.
            model: the model's folder; None for the tiny model.
            environ: variables.
        """
        self.port = free_port()
        self.began_s = time.time()
        named = str(model or install.MODEL)
        words = [named if word == str(install.MODEL) else word for word in serve.TINY_SERVER]
        given = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=vllm-{self.port},cloud.region=here",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",  # each test waits for its rows
            **environ,
        }
        super().__init__(
            folder,
            *serve.command(self.port, arguments, words),
            environ=serve.environment(endpoint, {**os.environ, **given}),
            start_new_session=True,
        )
        if not serve.wait_until_healthy(self.port, self.process):
            raise self.error("did not become healthy")
        self.healthy_s = time.time()

    def own_metrics(self) -> dict[str, float]:
        """Return vLLM's own series, summed over their labels."""
        totals: dict[str, float] = {}
        for line in get(f"http://127.0.0.1:{self.port}/metrics").splitlines():
            if line.startswith("vllm:"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                totals[name] = totals.get(name, 0.0) + float(value)
        return totals


StartVllm = Callable[..., Vllm]


def assert_parts_sum(row: Row, *, whole: bool = False) -> None:
    """Check that each phase's parts sum to the phase. With `whole`, every phase must have parts."""
    for phase, names in (
        ("queue", QUEUE_PARTS),
        ("prefill", PREFILL_PARTS),
        ("decode", DECODE_PARTS),
    ):
        parts = [row[name] for name in names]
        if whole or any(part is not None for part in parts):
            assert None not in parts
            assert sum(parts) == pytest.approx(row[f"{phase}_s"], abs=1e-6)
            assert min(parts) >= 0


def assert_start_parts_sum(row: Row, server: Vllm, within_s: float = 1.0) -> dict[str, float]:
    """Check that the parts of a start sum to the time until /health. Return them by name."""
    parts = {part: row[f"{part}_s"] for part in PARTS if row[f"{part}_s"] is not None}
    assert "unsplit" not in parts
    assert sum(parts.values()) == pytest.approx(row["length_s"], abs=1e-3)
    # The server is asked for /health every 0.5 s.
    assert row["length_s"] == pytest.approx(server.healthy_s - server.began_s, abs=within_s)
    return parts


def share_of_queue(rows: dict[str, Row], part: str) -> float:
    """Return this part's share of the queue time of all rows."""
    waited_s = sum(row["queue_s"] for row in rows.values())
    return float(sum(row[f"queue_{part}_s"] for row in rows.values()) / waited_s)


def reports_request_times() -> bool:
    packages = install.PYTHON.parents[1].glob("lib/python3*/site-packages/vllm/entrypoints")
    files = [file for folder in packages for file in folder.rglob("cli_args.py")]
    return any("enable_per_request_metrics" in file.read_text() for file in files)


def write_plugin(folder: Path, name: str, code: str, entry: str) -> None:
    """Write a distribution with a vLLM plugin, which is loaded if `folder` is on the path.

    Args:
        folder: the target folder.
        name: the name of the module and of the distribution.
        code: the module's code.
        entry: the entry point, `name = module:function`.
    """
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{entry}\n")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests before all others, because they take longest.

    The tests of a shared server run one after another and are marked `alone`. Tests that end the
    server run last.
    """
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    others = [item for item in items if here not in item.path.parents]

    def order(item: pytest.Item) -> tuple[int, bool]:
        names = getattr(item, "fixturenames", ())
        used = [SHARED.index(name) for name in names if name in SHARED]
        return max(used, default=len(SHARED)), bool(item.get_closest_marker("ends_its_server"))

    for item in mine:
        if set(SHARED) & set(getattr(item, "fixturenames", ())):
            item.add_marker("alone")
    items[:] = [*sorted(mine, key=order), *others]


@pytest.fixture(scope="session")
def installed() -> None:
    try:
        install.ensure()
    except install.ProgramUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def tailspan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    folder = tmp_path_factory.mktemp("tailspan")
    (folder / TARGETS).write_text("[]")
    words = ("--explorer-port=0", "--scrape-file", TARGETS, "--scrape-every", "1s")
    with Watching(folder, "up", *words) as running:
        yield running.is_up()
        assert running.ends(SIGTERM) == 0, running.printed


def _starting(tailspan: Watching, paths: pytest.TempPathFactory) -> Iterator[StartVllm]:
    with ExitStack() as running:

        def start(*arguments: str, model: Path | None = None, **environ: str) -> Vllm:
            endpoint = tailspan.address("http")
            folder = paths.mktemp("vllm")
            server = Vllm(folder, endpoint, *arguments, model=model, **environ)
            running.callback(server.stop)
            return server

        yield start


@pytest.fixture
def start_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    """Return a function that starts a vLLM with arguments and variables, for one test."""
    yield from _starting(tailspan, tmp_path_factory)


@pytest.fixture(scope="module")
def start_module_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    yield from _starting(tailspan, tmp_path_factory)


@pytest.fixture(scope="session")
def start_shared_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    """Return a function that starts a vLLM for several test files, and ends the previous vLLM,
    because each needs 2 GB."""
    with ExitStack() as running:

        def start(*arguments: str) -> Vllm:
            running.close()
            folder = tmp_path_factory.mktemp("vllm")
            server = Vllm(folder, tailspan.address("http"), *arguments)
            running.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="session")
def crowded(start_shared_vllm: StartVllm) -> Vllm:
    """Return a vLLM with so few KV blocks that requests with long responses preempt one another."""
    return start_shared_vllm("--num-gpu-blocks-override", "12", "--max-model-len", "1024")


@pytest.fixture(scope="session")
def vllm(start_shared_vllm: StartVllm) -> Vllm:
    """Return a vLLM with the rig's arguments that estimates its own memory traffic. From version
    0.25, it reports a request's times in the response."""
    times = ("--enable-per-request-metrics",) if reports_request_times() else ()
    return start_shared_vllm("--max-model-len", "8192", "--enable-mfu-metrics", *times)


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    return found


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Callable[[str], Start]]:
    """Return a function that prepares collectors for a database, always on the same ports."""
    with ExitStack() as running:

        def make(database_url: str) -> Start:
            ports = [f"--{name}-port={free_port()}" for name in ("grpc", "http", "metrics")]
            environ = {"TAILSPAN_DATABASE_URL": database_url}
            begin = partial(Tailspan, tmp_path, "up", "--no-explorer", *ports, environ=environ)
            return lambda: running.enter_context(begin()).is_up()

        yield make


@pytest.fixture
def message() -> Callable[[], ExportTraceServiceRequest]:
    """Return a function that makes messages about requests that just ended."""
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
