"""GPU samples as the OTLP message that `tailspan gpus --endpoint` sends."""

from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names

from telemetry.gpu_export import gpu_metrics_of
from telemetry.gpus import GpuSample

PATH: Final = "/v1/metrics"


def message(samples: Sequence[GpuSample]) -> bytes:
    """An OTLP metrics message with one resource per replica."""
    by_replica: dict[str, list[GpuSample]] = {}
    for sample in samples:
        by_replica.setdefault(sample.replica, []).append(sample)
    exported = [
        gpu_metrics_of(those, Resource({names.SERVICE_INSTANCE_ID: replica}))
        for replica, those in by_replica.items()
    ]
    return encode_metrics(MetricsData(exported)).SerializeToString()
