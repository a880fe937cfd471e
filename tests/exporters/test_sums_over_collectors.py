"""Prometheus scrapes three collectors, each with the requests of some replicas."""

import json
import shutil
import threading
import urllib.parse
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.prometheus.collector_rules import TENANT_REQUESTS, collector_group
from alerts.prometheus.rulefile import render
from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format
from exporters.prometheus import PrometheusExporter
from exporters.totals.label_limits import LIMIT, ExporterLabels
from rig.ports import free_port
from rig.program import Program
from rig.prometheus_stack import wait_for
from store.database import open_database
from store.rollups import names as names_module
from store.rollups.bucket_builder import build_marked
from store.rollups.label_storage import exported_tenants
from store.rollups.names import EXPORTED_TENANTS
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

Row = Callable[..., RequestTimeline]
Sample = Callable[..., EngineSample]
COLLECTORS = 3
NAMED = 10
TENANTS, REPLICAS, REQUESTS = 40, 12, 1_200


def collector_of(replica: str) -> int:
    return zlib.crc32(replica.encode()) % COLLECTORS


def requests(row: Row, first: int = 0) -> list[RequestTimeline]:
    """Return requests of every tenant at every replica. Tenants with lower numbers send more."""
    return [
        row(
            trace_id=f"{first + n:032x}",
            span_id=f"{first + n + 1:016x}",
            tenant=f"t{min(n % TENANTS, n // 7 % TENANTS):02}",
            replica=f"r{n % REPLICAS}",
        )
        for n in range(REQUESTS)
    ]


@contextmanager
def served(exporter: PrometheusExporter) -> Iterator[int]:
    exposition = Exposition([exporter])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition.write(Format.OPENMETRICS)
            self.send_response(200)
            self.send_header("Content-Type", Format.OPENMETRICS)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus(folder: Path, ports: list[int]) -> Iterator[Callable[[str], dict[str, float]]]:
    """Start a Prometheus, and yield a function that returns a query's values by its only label."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus: apt-get install prometheus")
    (folder / "rules.yaml").write_text(
        render([collector_group("http://127.0.0.1:8501")]).replace("interval: 30s", "interval: 1s")
    )
    configuration = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "tailspan",
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    port = free_port()
    url = f"http://127.0.0.1:{port}/api/v1/query"
    command = (
        program,
        "--config.file=prometheus.yaml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
    )

    def ask(query: str) -> dict[str, float]:
        given = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{url}?{given}", timeout=10) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return {
            next((v for k, v in each["metric"].items() if k != "__name__"), ""): float(
                each["value"][1]
            )
            for each in found
        }

    with Program(folder, *command):
        yield ask


def by(sums: str, label: str) -> str:
    return f"sum by ({label}) ({sums})"


def test_the_shared_names_fit_into_an_exporter() -> None:
    assert EXPORTED_TENANTS == LIMIT


def test_sums_over_collectors_equal_the_truth_or_are_left_out(
    tmp_path: Path,
    clock: Any,
    request_row: Row,
    sample_row: Sample,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("store.rollups.label_sets.EXPORTED_TENANTS", NAMED)
    assert names_module.LIMITS["tenant"] > TENANTS
    store = open_database(f"sqlite:///{tmp_path}/shared.db")
    with Writer(store) as writer:
        writer.submit(requests(request_row), []).result(30)
    build_marked(store, clock.unix_ns // 10**9 + 7_200)
    shared = exported_tenants(store)
    store.dispose()
    assert len(shared) == NAMED

    exporters = [
        PrometheusExporter(clock_unix_ns=clock, labels=ExporterLabels(limit=NAMED))
        for _ in range(COLLECTORS)
    ]

    def send(some: list[RequestTimeline]) -> None:
        for number, exporter in enumerate(exporters):
            mine = [each for each in some if collector_of(each.replica or "") == number]
            assert mine
            exporter.on_stored(mine, [])

    # If the collectors do not share names, each one reports by name the first tenants that it
    # receives.
    before = requests(request_row, 10_000)
    send(before)
    with ExitStack() as running:
        ports = [running.enter_context(served(each)) for each in exporters]
        ask = running.enter_context(prometheus(tmp_path, ports))
        total = "tailspan_tenant_requests_total"
        wait_for("scrapes", lambda: sum(ask(f"sum({total})").values()) == len(before))
        wrong = ask(by(total, "tenant"))
        truth = Counter(each.tenant or "" for each in before)
        assert any(wrong[each] < truth[each] for each in wrong if each != "other")
        named = f"count by (tenant) (tailspan_tenant_named_since_seconds) == {COLLECTORS}"
        assert all(wrong[each] == truth[each] for each in ask(named))

        for exporter in exporters:
            exporter.share_tenants(shared)
        wait_for("names", lambda: set(ask(named)) == set(shared))
        start = ask(by(total, "tenant"))
        after = requests(request_row, 20_000)
        send(after)
        for number, exporter in enumerate(exporters):
            replicas = [r for r in range(REPLICAS) if collector_of(f"r{r}") == number]
            samples = [sample_row(replica=f"r{r}", steps_total=100 + r) for r in replicas]
            exporter.on_stored([], samples)
        wait_for(
            "scrapes",
            lambda: sum(ask(f"sum({total})").values()) == sum(start.values()) + len(after),
        )
        found = ask(by(total, "tenant"))
        more = {each: found[each] - start.get(each, 0) for each in found}
        truth = Counter(each.tenant or "" for each in after)
        assert {each: more[each] for each in shared} == {each: truth[each] for each in shared}
        assert more["other"] == sum(n for each, n in truth.items() if each not in shared)

        of_replicas = Counter(each.replica or "" for each in [*before, *after])
        assert ask(by("tailspan_requests_total", "replica")) == of_replicas
        assert ask(by("tailspan_engine_steps_total", "replica")) == {
            f"r{r}": 100 + r for r in range(REPLICAS)
        }
        recorded = {*shared, "other"}
        wait_for("the recorded series", lambda: set(ask(TENANT_REQUESTS)) == recorded)
