from typing import Any

from prometheus_client.registry import CollectorRegistry

from exporters.definitions.gpu_series import GPU_GAUGES
from exporters.definitions.series_types import OTHER
from exporters.prometheus import PrometheusExporter
from exporters.totals.gpus import MOVED_NS, STALE_NS
from exporters.totals.label_limits import IDLE_NS, ExporterLabels
from telemetry.gpus import METRICS, GpuSample, GpuSource

ABOUT = {"replica": "chat-0", "gpu": "GPU-1", "model_name": "NVIDIA H100"}


def sample(clock: Any, **about: Any) -> GpuSample:
    plain: dict[str, Any] = {**ABOUT, "at_unix_ns": clock.unix_ns, "source": GpuSource.NVML}
    return GpuSample(**{**plain, **about})


def read(exporter: PrometheusExporter, name: str, **labels: str) -> float | None:
    registry: CollectorRegistry = exporter.registry
    return registry.get_sample_value(name, labels)


def test_every_measurement_has_its_series() -> None:
    assert set(GPU_GAUGES) == set(METRICS) - {"energy_j_total"}


def test_gpu_series_have_base_units(exporter: PrometheusExporter, clock: Any) -> None:
    values: dict[str, Any] = dict.fromkeys(GPU_GAUGES, 1) | {"power_w": 512.5}
    exporter.on_gpus_stored([sample(clock, energy_j_total=7e6, **values)])
    for name, of in GPU_GAUGES.items():
        assert read(exporter, of.name, **ABOUT) == values[name]
    assert read(exporter, "tailspan_gpu_energy_joules_total", **ABOUT) == 7e6
    reported_s = read(exporter, "tailspan_gpu_last_sample_timestamp_seconds", **ABOUT)
    assert reported_s == clock.unix_ns / 1e9


def test_unreported_values_have_no_series(exporter: PrometheusExporter, clock: Any) -> None:
    exporter.on_gpus_stored(
        [sample(clock, dram_bandwidth_ratio=0.0), sample(clock, gpu="GPU-2", model_name=None)]
    )
    assert read(exporter, "tailspan_gpu_dram_bandwidth_ratio", **ABOUT) == 0
    nameless = {"replica": "chat-0", "gpu": "GPU-2", "model_name": ""}
    assert read(exporter, "tailspan_gpu_dram_bandwidth_ratio", **nameless) is None
    assert read(exporter, "tailspan_gpu_energy_joules_total", **ABOUT) is None
    assert read(exporter, "tailspan_gpu_throttle_reasons", **ABOUT) is None


def test_throttle_reasons_are_counted_and_named(exporter: PrometheusExporter, clock: Any) -> None:
    """An unknown reason becomes `other`, so that senders cannot create label values."""
    exporter.on_gpus_stored(
        [
            sample(clock, throttle_reasons="hw_slowdown,sw_power_cap,x,y"),
            sample(clock, gpu="GPU-2", throttle_reasons=""),
        ]
    )
    assert read(exporter, "tailspan_gpu_throttle_reasons", **ABOUT) == 4
    assert read(exporter, "tailspan_gpu_throttle_reasons", **{**ABOUT, "gpu": "GPU-2"}) == 0
    for reason in ("hw_slowdown", "sw_power_cap", OTHER):
        assert read(exporter, "tailspan_gpu_throttle_reason", **ABOUT, reason=reason) == 1
    assert read(exporter, "tailspan_gpu_throttle_reason", **ABOUT, reason="x") is None


def test_the_latest_sample_counts(exporter: PrometheusExporter, clock: Any) -> None:
    old = sample(clock, power_w=100.0)
    clock.advance(5)
    exporter.on_gpus_stored([sample(clock, power_w=200.0), old])
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) == 200


def test_a_silent_gpus_series_end_after_a_minute(exporter: PrometheusExporter, clock: Any) -> None:
    exporter.on_gpus_stored([sample(clock, power_w=100.0)])
    clock.advance(STALE_NS / 1e9)
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) == 100
    exporter.on_gpus_stored([sample(clock, gpu="GPU-2", power_w=300.0)])
    clock.advance(1)
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) is None
    assert read(exporter, "tailspan_gpu_power_watts", **{**ABOUT, "gpu": "GPU-2"}) == 300


def test_a_gpu_that_changes_replica_counts_once(exporter: PrometheusExporter, clock: Any) -> None:
    """If two replicas keep reporting a GPU of one name, the name stands for two GPUs."""
    exporter.on_gpus_stored([sample(clock, power_w=100.0)])
    moved = {**ABOUT, "replica": "chat-1"}
    for _ in range(3):
        clock.advance(MOVED_NS / 2e9)
        exporter.on_gpus_stored([sample(clock, replica="chat-1", power_w=300.0)])
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) is None
    assert read(exporter, "tailspan_gpu_power_watts", **moved) == 300
    for _ in range(3):
        exporter.on_gpus_stored([sample(clock, power_w=100.0)])
        clock.advance(MOVED_NS / 2e9)
        exporter.on_gpus_stored([sample(clock, replica="chat-1", power_w=300.0)])
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) == 100


def test_a_gpu_that_moved_before_the_clock_was_set_back_is_reported(
    exporter: PrometheusExporter, clock: Any
) -> None:
    """The last sample of its old replica is then in the future."""
    exporter.on_gpus_stored([sample(clock, power_w=100.0)])
    clock.advance(-3_600)
    assert read(exporter, "tailspan_gpu_power_watts", **ABOUT) is None
    exporter.on_gpus_stored([sample(clock, replica="chat-1", power_w=300.0)])
    moved = {**ABOUT, "replica": "chat-1"}
    assert read(exporter, "tailspan_gpu_power_watts", **moved) == 300


def test_gpus_are_bounded(clock: Any) -> None:
    exporter = PrometheusExporter(clock_unix_ns=clock, labels=ExporterLabels(gpu_limit=2))
    exporter.on_gpus_stored([sample(clock, gpu=f"GPU-{n}", power_w=1.0) for n in range(3)])
    assert read(exporter, "tailspan_gpu_power_watts", **{**ABOUT, "gpu": "GPU-2"}) is None
    overflow = "tailspan_exporter_label_overflows_total"
    assert read(exporter, overflow, label="gpu") == 1
    clock.advance(IDLE_NS / 1e9)
    exporter.on_gpus_stored([sample(clock, gpu="GPU-2", power_w=1.0)])
    assert read(exporter, "tailspan_gpu_power_watts", **{**ABOUT, "gpu": "GPU-2"}) == 1


def test_simulated_gpus_are_marked(exporter: PrometheusExporter, clock: Any) -> None:
    exporter.on_gpus_stored([sample(clock, simulated=True)])
    assert read(exporter, "tailspan_simulated_data") == 1


def test_without_gpus_there_is_no_series(exporter: PrometheusExporter) -> None:
    assert not [m for m in exporter.registry.collect() if m.name.startswith("tailspan_gpu_")]
