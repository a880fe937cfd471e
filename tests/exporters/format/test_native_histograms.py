import asyncio
import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from collector.listen.asgi_server import AsgiHost
from collector.testing import background_loop
from exporters.format.exposition import Exposition
from exporters.format.histogram_cells import GROWTH
from exporters.format.text import Families, Family
from exporters.metrics_app import metrics_app
from exporters.prometheus import PrometheusExporter
from rig.ports import free_port
from rig.program import Program
from rig.prometheus_stack import answers, wait_for
from telemetry.quantiles import quantile
from telemetry.requests import RequestTimeline

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
Factory = Callable[..., RequestTimeline]

SERIES = "tailspan_ttft_seconds"
REQUESTS = 2_000


class Restarted(Families):
    """An exporter that is replaced by another exporter, as after a restart."""

    def __init__(self) -> None:
        self.now = PrometheusExporter()

    def families(self) -> Iterator[Family]:
        return self.now.families()


@dataclass
class Scraped:
    """An exporter that Prometheus scrapes every 0.5 s."""

    exporter: Restarted
    url: str

    def ask(self, query: str) -> Any:
        words = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=30) as answer:
            return json.loads(answer.read())["data"]["result"]

    def number(self, query: str) -> float | None:
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else None

    def serve(self, request_row: Factory, values_s: list[float]) -> None:
        """Count requests with these times to first token, and wait for a scrape."""
        before = self.number(f"histogram_count({SERIES})") or 0.0
        now = time.time_ns()
        rows = [
            request_row(ttft_s=value_s, e2e_s=value_s + 1, received_unix_ns=now)
            for value_s in values_s
        ]
        self.exporter.now.on_stored(rows, [])
        wanted = before + len(values_s)
        wait_for("scrape", lambda: self.number(f"histogram_count({SERIES})") == wanted)


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("there is no prometheus: apt-get install prometheus")
    exporter = Restarted()
    app = metrics_app(Exposition([exporter]), lambda: True)
    host = AsgiHost(app, host="127.0.0.1", port=0, option="--metrics-port")
    port = free_port()
    with background_loop() as loop:
        asyncio.run_coroutine_threadsafe(host.start(), loop).result(timeout=30)
        target = {"targets": [f"127.0.0.1:{host.port}"]}
        configuration = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "tailspan", "static_configs": [target]}],
        }
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        options = (
            "--config.file=prometheus.yaml",
            "--storage.tsdb.path=data",
            "--enable-feature=native-histograms,exemplar-storage",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        url = f"http://127.0.0.1:{port}"
        try:
            with Program(tmp_path, prometheus, *options):
                wait_for("prometheus", partial(answers, f"{url}/-/ready"))
                yield Scraped(exporter, url)
        finally:
            asyncio.run_coroutine_threadsafe(host.stop(1), loop).result(timeout=30)


def test_prometheus_finds_quantiles_within_a_bucket_and_all_other_metrics(
    scraped: Scraped, request_row: Factory
) -> None:
    """The error is at most the width of a bucket, 9 %. Prometheus counts from its second scrape."""
    scraped.serve(request_row, [0.2])
    values_s = np.random.default_rng(6).lognormal(-1, 1.5, REQUESTS)
    scraped.serve(request_row, values_s.tolist())
    for q in (0.5, 0.9, 0.99):
        found = scraped.number(f"histogram_quantile({q}, rate({SERIES}[5m]))")
        exact = quantile(values_s, q)
        assert found is not None
        assert exact is not None
        assert 1 / GROWTH <= found / exact <= GROWTH
    assert scraped.number("up") == 1
    assert scraped.number(f"histogram_sum({SERIES})") == pytest.approx(values_s.sum() + 0.2)
    words = urllib.parse.urlencode({"query": SERIES, "start": time.time() - 60, "end": time.time()})
    with urllib.request.urlopen(f"{scraped.url}/api/v1/query_exemplars?{words}") as answer:
        [reported] = json.loads(answer.read())["data"]
    assert all(len(each["labels"]["trace_id"]) == 32 for each in reported["exemplars"])
    recent = scraped.ask('{__name__=~"tailspan_recent_ttft.*"}')
    assert {each["metric"]["quantile"] for each in recent} == {"0.5", "0.95", "0.99"}
    assert scraped.number('tailspan_requests_total{outcome="stop"}') == REQUESTS + 1
    assert not scraped.ask(f"{SERIES}_bucket")  # this Prometheus stores only native histograms


def test_a_restart_is_only_a_reset(scraped: Scraped, request_row: Factory) -> None:
    scraped.serve(request_row, [0.2] * 10)
    scraped.exporter.now = PrometheusExporter()
    scraped.exporter.now.on_stored([request_row(ttft_s=3.0)] * 1, [])
    wait_for("reset", lambda: scraped.number(f"histogram_count({SERIES})") == 1)
    scraped.serve(request_row, [3.0] * 3)
    assert scraped.number(f"histogram_count(increase({SERIES}[1m]))") == pytest.approx(4, rel=0.9)
    found = scraped.number(f"histogram_quantile(0.5, rate({SERIES}[1m]))")
    assert found == pytest.approx(3, rel=GROWTH - 1)
