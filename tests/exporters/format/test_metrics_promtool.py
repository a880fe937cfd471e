import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from collector.counters import Counters
from exporters.definitions.gpu_series import GPU_GAUGES
from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format
from exporters.prometheus import PrometheusExporter
from exporters.self_metrics.gpu_readers import GpuReaderMetrics
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import PricedBy, RequestTimeline
from tests.exporters.self_metrics.test_gpu_readers import State


@pytest.mark.real
def test_promtool_check_finds_no_error(
    clock: Any, request_row: Callable[..., RequestTimeline], sample_row: Callable[..., EngineSample]
) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    exporter = PrometheusExporter(
        Counters().report, clock_unix_ns=clock, usd_per_s=lambda replica, engine: 0.0005
    )
    fields: dict[str, Any] = {"cost_usd": 0.001, "priced_by": PricedBy.LEDGER, "wasted_s": 0.1}
    exporter.on_stored([request_row(**fields) for _ in range(400)], [sample_row()])
    values: dict[str, Any] = dict.fromkeys(GPU_GAUGES, 1)
    gpu = GpuSample(
        replica="r1",
        gpu="GPU-1",
        at_unix_ns=clock(),
        model_name="NVIDIA H100",
        energy_j_total=7e6,
        throttle_reasons="sw_power_cap",
        **values,
    )
    exporter.on_gpus_stored([gpu])
    readers = GpuReaderMetrics(lambda: [State("nvml", True, (gpu,), {"lost": 1}, 0.01, 1)])
    exposition = Exposition([exporter, readers])
    exposition.write(Format.PLAIN)
    text = exposition.write(Format.PLAIN)
    assert b'tailspan_recent_ttft_seconds{model="llama",quantile="0.99",replica="r1"}' in text
    assert b'tailspan_wasted_cost_usd_total{model="llama",replica="r1"} ' in text
    assert b'tailspan_gpu_power_watts{gpu="GPU-1",model_name="NVIDIA H100",replica="r1"} 1' in text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
