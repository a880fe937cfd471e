"""`/metrics` in Prometheus' own hands."""

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from collector.counters import Counters
from exporters.exposition import Exposition
from exporters.prometheus import PrometheusExporter
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline


@pytest.mark.real
def test_prometheus_finds_nothing_to_mend(
    clock: Any, request_row: Callable[..., RequestTimeline], sample_row: Callable[..., EngineSample]
) -> None:
    """Names, types, units and reserved labels are as its linter wants them."""
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    exporter = PrometheusExporter(Counters().report, clock_unix_ns=clock)
    exporter.on_stored([request_row() for _ in range(400)], [sample_row()])
    exposition = Exposition([exporter])
    exposition.write(openmetrics=False)
    text = exposition.write(openmetrics=False)
    assert b'tailspan_recent_ttft_seconds{model="llama",quantile="0.99",replica="r1"}' in text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
