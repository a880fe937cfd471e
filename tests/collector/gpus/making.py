from typing import Any

from collector.gpus.reader import GpuReading
from telemetry.gpus import GpuSource
from tests.collector.gpus.conftest import NOW_UNIX_NS
from tests.collector.gpus.driver import H100


def reading(gpu: str = "GPU-1", **about: Any) -> GpuReading:
    plain: dict[str, Any] = {
        "at_unix_ns": NOW_UNIX_NS,
        "source": GpuSource.NVML,
        "model_name": H100,
        "values": {"power_w": 300.0},
        "processes": frozenset(),
    }
    return GpuReading(gpu=gpu, **{**plain, **about})


def of_dcgm(gpu: str = "GPU-1", **labels: str) -> GpuReading:
    return reading(gpu, source=GpuSource.DCGM, index=0, processes=None, labels=labels)
