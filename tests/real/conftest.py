"""A real vLLM on the CPU, and all of Tailspan beside it, as processes of their own."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rig import install, serve
from rig.ports import free_port

Row = dict[str, Any]

TARGETS = "targets.json"
"""In Tailspan's folder: whom it scrapes. Empty but where a test writes it."""


@dataclass
class Tailspan:
    """A running `tailspan up`."""

    folder: Path
    grpc_port: int
    http_port: int
    metrics_port: int
    explorer_port: int

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another verb, in the same folder and so on the same database."""
        return subprocess.run(
            [Path(sys.executable).with_name("tailspan"), *arguments],
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

    def metrics(self) -> str:
        """What Prometheus would scrape."""
        return get(f"http://127.0.0.1:{self.metrics_port}/metrics")


@dataclass
class Vllm:
    """A running vLLM."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    own_before: dict[str, float] = field(default_factory=dict)

    def own_metrics(self) -> dict[str, float]:
        """vLLM's own series, summed over their labels."""
        totals: dict[str, float] = {}
        for line in get(f"http://127.0.0.1:{self.port}/metrics").splitlines():
            if line.startswith("vllm:"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                totals[name] = totals.get(name, 0.0) + float(value)
        return totals


def get(url: str) -> str:
    """The text at a local address."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="session")
def installed() -> None:
    """A vLLM to start, installed where it can be."""
    try:
        install.ensure()
    except install.NotHereError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def tailspan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tailspan]:
    """All of Tailspan, in an empty folder."""
    folder = tmp_path_factory.mktemp("tailspan")
    grpc, http, metrics, explorer = (free_port() for _ in range(4))
    (folder / TARGETS).write_text("[]")
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(Path(sys.executable).with_name("tailspan"), "up"),
                *("--grpc-port", str(grpc), "--http-port", str(http)),
                *("--metrics-port", str(metrics), "--explorer-port", str(explorer)),
                *("--scrape-file", TARGETS, "--scrape-every", "1s"),
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    running = Tailspan(folder, grpc, http, metrics, explorer)
    deadline = time.monotonic() + 60
    while "Ctrl-C stops it" not in (folder / "up.log").read_text():
        assert process.poll() is None, (folder / "up.log").read_text()
        assert time.monotonic() < deadline, (folder / "up.log").read_text()
        time.sleep(0.2)
    yield running
    process.terminate()
    assert process.wait(30) == 0, (folder / "up.log").read_text()


@pytest.fixture(scope="module")
def start_vllm(
    installed: None, tailspan: Tailspan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Vllm]]:
    """Start a vLLM with arguments of its own; all of them end with the module: each takes 2 GB."""
    running: list[Vllm] = []

    def start(*arguments: str, **environ: str) -> Vllm:
        port = free_port()
        log = tmp_path_factory.mktemp("vllm") / "log"
        endpoint = f"http://127.0.0.1:{tailspan.http_port}"
        given = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=vllm-{port},cloud.region=here",
            **environ,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                serve.command(port, arguments),
                env=serve.environment(endpoint, given),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        server = Vllm(port, process, log)
        running.append(server)
        if not serve.wait_until_healthy(port, process):
            pytest.fail("\n".join(log.read_text(errors="replace").splitlines()[-30:]))
        return server

    yield start
    for server in running:
        serve.stop(server.process)


@pytest.fixture(scope="module")
def vllm(start_vllm: Callable[..., Vllm]) -> Vllm:
    """A vLLM with the rig's arguments, warmed up."""
    return start_vllm("--max-model-len", "8192")


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    return found
