from dataclasses import dataclass, field

from prometheus_client.registry import CollectorRegistry

from exporters.self_metrics.gpu_readers import GpuReaderMetrics


@dataclass
class State:
    name: str
    up: bool | None = None
    gpus: tuple[object, ...] = ()
    failures: dict[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    last_success_unix_ns: int | None = None


def _registry(*states: State) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GpuReaderMetrics(lambda: states))
    return registry


def test_each_reader_is_up_or_down_with_its_problem() -> None:
    registry = _registry(
        State("nvml", True, (1, 2), {"lost": 3}, 0.004, 1_500_000_000),
        State("http://x", False, (), {"timeout": 1}),
        State("amd_smi"),
    )
    read = registry.get_sample_value
    assert read("tailspan_gpu_reader_up", {"reader": "nvml"}) == 1
    assert read("tailspan_gpu_reader_up", {"reader": "http://x"}) == 0
    assert read("tailspan_gpu_reader_up", {"reader": "amd_smi"}) is None
    assert read("tailspan_gpu_reader_gpus", {"reader": "nvml"}) == 2
    failed = {"reader": "nvml", "reason": "lost"}
    assert read("tailspan_gpu_reader_failures_total", failed) == 3
    assert read("tailspan_gpu_reader_duration_seconds", {"reader": "nvml"}) == 0.004
    last = "tailspan_gpu_reader_last_success_timestamp_seconds"
    assert read(last, {"reader": "nvml"}) == 1.5
    assert read(last, {"reader": "http://x"}) is None


def test_without_a_gpu_there_is_no_series() -> None:
    assert not list(_registry(State("nvml"), State("amd_smi")).collect())
