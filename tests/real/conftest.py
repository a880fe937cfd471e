"""Real vLLMs on the CPU, and all of Tailspan beside them, as processes of their own."""

import json
import os
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from rig import install, serve
from rig.load import Timed
from rig.ports import free_port
from rig.program import Program, Tailspan, tailspan_command
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, QUEUE_PARTS

Row = dict[str, Any]

TARGETS = "targets.json"
"""In Tailspan's folder: whom it scrapes. Empty but where a test writes it."""

SHARED = ("crowded", "vllm")
"""The servers that several files use, in the order in which their tests run."""


class Watching(Tailspan):
    """A running `tailspan up`, and the commands that read its database."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command, in the same folder and so on the same database."""
        return subprocess.run(
            tailspan_command(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def rows(self, wanted: set[str], patience_s: float = 20) -> dict[str, Row]:
        """The rows of these traces, by trace id, once they are all there."""
        deadline = time.monotonic() + patience_s
        while True:
            done = self.run("requests", "--last", "1h", "--format", "json")
            assert done.returncode == 0, done.stderr
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            found = {row["trace_id"]: row for row in rows if row["trace_id"] in wanted}
            if len(found) == len(wanted) or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

    def query(self, statement: str, *values: Any) -> list[Row]:
        """Rows of its database."""
        file = f"file:{self.folder}/var/tailspan.db?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(statement, values)]

    def stored(self, seen: Iterable[Timed]) -> dict[str, Row]:
        """Every column of these requests, by trace id, from the best source, once all are there."""
        wanted = {timed.trace_id for timed in seen}
        self.rows(wanted)
        rows = self.query("SELECT * FROM requests ORDER BY source = 'instrumentation'")
        return {row["trace_id"]: row for row in rows if row["trace_id"] in wanted}

    def samples(self, replica: str) -> list[Row]:
        """A server's samples, in their order."""
        statement = "SELECT * FROM engine_samples WHERE replica = ? ORDER BY at_unix_ns"
        return self.query(statement, replica)

    def metrics(self) -> str:
        """What Prometheus would scrape."""
        return get(f"{self.address('metrics')}/metrics")


class Vllm(Program):
    """A running vLLM that sends to Tailspan."""

    def __init__(self, folder: Path, endpoint: str, *arguments: str, **environ: str) -> None:
        self.port = free_port()
        given = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=vllm-{self.port},cloud.region=here",
            **environ,
        }
        super().__init__(
            folder,
            *serve.command(self.port, arguments),
            environ=serve.environment(endpoint, {**os.environ, **given}),
            start_new_session=True,
        )
        if not serve.wait_until_healthy(self.port, self.process):
            raise self.error("did not become healthy")

    def own_metrics(self) -> dict[str, float]:
        """vLLM's own series, summed over their labels."""
        totals: dict[str, float] = {}
        for line in get(f"http://127.0.0.1:{self.port}/metrics").splitlines():
            if line.startswith("vllm:"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                totals[name] = totals.get(name, 0.0) + float(value)
        return totals


StartVllm = Callable[..., Vllm]


def assert_parts_sum(row: Row, *, whole: bool = False) -> None:
    """Promise one, on a row; `whole` where no phase may be without its parts."""
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


def write_plugin(folder: Path, name: str, code: str, entry: str) -> None:
    """Write a distribution with a plugin of vLLM's, which loads it where `folder` is on the path.

    Args:
        folder: where.
        name: of the module and the distribution.
        code: of the module.
        entry: the entry point, `name = module:function`; they are loaded by name.
    """
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{entry}\n")


def get(url: str) -> str:
    """The text at a local address."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of a shared server in a row, those that end it last, and mark them `alone`."""
    places = [n for n, item in enumerate(items) if Path(__file__).parent in item.path.parents]

    def order(item: pytest.Item) -> tuple[int, bool]:
        names = getattr(item, "fixturenames", ())
        used = [SHARED.index(name) for name in names if name in SHARED]
        return max(used, default=len(SHARED)), bool(item.get_closest_marker("ends_its_server"))

    for item in (items[n] for n in places):
        if set(SHARED) & set(getattr(item, "fixturenames", ())):
            item.add_marker("alone")
    for place, item in zip(places, sorted((items[n] for n in places), key=order), strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def installed() -> None:
    """A vLLM to start, installed where it can be."""
    try:
        install.ensure()
    except install.NotHereError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def tailspan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    """All of Tailspan, in an empty folder."""
    folder = tmp_path_factory.mktemp("tailspan")
    (folder / TARGETS).write_text("[]")
    words = ("--explorer-port=0", "--scrape-file", TARGETS, "--scrape-every", "1s")
    with Watching(folder, "up", *words) as running:
        yield running.is_up()
        assert running.ends(SIGTERM) == 0, running.said


def _starting(tailspan: Watching, paths: pytest.TempPathFactory) -> Iterator[StartVllm]:
    with ExitStack() as running:

        def start(*arguments: str, **environ: str) -> Vllm:
            endpoint = tailspan.address("http")
            server = Vllm(paths.mktemp("vllm"), endpoint, *arguments, **environ)
            running.callback(server.stop)
            return server

        yield start


@pytest.fixture
def start_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    """Start a vLLM with arguments and variables of its own; it ends with the test."""
    yield from _starting(tailspan, tmp_path_factory)


@pytest.fixture(scope="module")
def start_module_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    """The same; it ends with the module."""
    yield from _starting(tailspan, tmp_path_factory)


@pytest.fixture(scope="session")
def start_shared_vllm(
    installed: None, tailspan: Watching, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartVllm]:
    """Start a vLLM that several files use, and end the one before it: each takes 2 GB."""
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
    """So few blocks that long answers evict one another, and must be computed again."""
    return start_shared_vllm("--num-gpu-blocks-override", "12", "--max-model-len", "1024")


@pytest.fixture(scope="session")
def vllm(start_shared_vllm: StartVllm) -> Vllm:
    """A vLLM with the rig's arguments, and its own account of what it moves."""
    return start_shared_vllm("--max-model-len", "8192", "--enable-mfu-metrics")


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    return found
