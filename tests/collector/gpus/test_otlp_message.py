from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.gpus.otlp_message import message
from collector.normalise.engine_points import normalise_points
from telemetry.gpus import GpuSample, GpuSource, throttle_reasons
from tests.collector.gpus.conftest import NOW_UNIX_NS

_ratios = st.none() | st.floats(0, 1)
_amounts = st.none() | st.floats(0, 1e15)
_counts = st.none() | st.integers(0, 2**53)
_samples = st.builds(
    GpuSample,
    replica=st.sampled_from(["chat-0", "gpu-host:8000", "gpu-host"]),
    gpu=st.sampled_from(["GPU-1", "GPU-2", "MIG-3"]),
    at_unix_ns=st.integers(NOW_UNIX_NS, NOW_UNIX_NS + 5),
    source=st.none() | st.sampled_from([GpuSource.NVML, GpuSource.DCGM, GpuSource.AMD_SMI]),
    model_name=st.none() | st.just("NVIDIA H100 80GB HBM3"),
    dram_bandwidth_ratio=_ratios,
    sm_active_ratio=_ratios,
    power_w=st.floats(0, 1e4),
    energy_j_total=_amounts,
    memory_used_bytes=_counts,
    foreign_processes=_counts,
    nvlink_tx_bytes_per_s=_amounts,
    throttle_reasons=st.none()
    | st.sets(st.sampled_from(["sw_power_cap", "hw_slowdown"])).map(throttle_reasons),
)


@settings(max_examples=30)
@given(st.lists(_samples, max_size=6, unique_by=lambda s: (s.replica, s.gpu, s.at_unix_ns)))
def test_a_sample_is_read_unchanged(samples: Sequence[GpuSample]) -> None:
    batch = normalise_points(message(samples), NOW_UNIX_NS)
    assert not batch.refused
    assert not batch.skipped

    def order(sample: GpuSample) -> tuple[str, str, int]:
        return sample.replica, sample.gpu, sample.at_unix_ns

    assert sorted(batch.gpus, key=order) == sorted(samples, key=order)
