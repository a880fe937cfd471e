from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.engine_metrics import encode_samples

from collector.gpus.otlp_message import message
from collector.normalise.engine_points import FIELDS
from telemetry.gpus import METRICS, GpuSample, GpuSource

NOW_UNIX_NS = 1_790_000_000 * 10**9
SECOND_NS = 10**9
STARTED_UNIX_NS = NOW_UNIX_NS - 3_600 * SECOND_NS

GAUGES: Mapping[str, float] = {
    name: 3 if field.quantity == "count" else 0.5
    for name, field in FIELDS.items()
    if field.shape == "gauge"
}
TOTALS: Mapping[str, float] = {
    name: 1_000 if field.quantity == "count" else 12.5
    for name, field in FIELDS.items()
    if field.shape == "sum" and name not in (names.SPANS_DROPPED, names.HOOK_FAILURES)
}


def engine_message(
    second: int = 0,
    *,
    engines: int = 1,
    replica: str | None = "replica-1",
    simulated: bool = False,
    started_unix_ns: int = STARTED_UNIX_NS,
    gauges: Mapping[str, float] = GAUGES,
    totals: Mapping[str, float] = TOTALS,
    failures: Mapping[str, int] | None = None,
    drops: Mapping[str, int] | None = None,
) -> bytes:
    labels: dict[str, str | int | bool] = {names.PROCESS_PID: 4242}
    if replica is not None:
        labels[names.SERVICE_INSTANCE_ID] = replica
    if simulated:
        labels[names.SIMULATED] = True
    samples = []
    for engine in range(engines):
        state = EngineState(
            engine=engine,
            started_unix_ns=started_unix_ns,
            model="meta-llama/Llama-3.1-8B-Instruct",
            config="3f0f5ec2",
            gauges=dict(gauges),
            totals={name: value + second for name, value in totals.items()},
        )
        at_unix_ns = NOW_UNIX_NS + second * SECOND_NS
        samples.append(EngineStateSample(at_unix_ns, state.snapshot({}, failures or {}, drops)))
    return encode_samples(samples, Resource(labels))


def gpu_message(second: int = 0, *, gpus: int = 2, throttle_reasons: str = "") -> bytes:
    values = {field: 1.0 if field.endswith(("_ratio", "_w")) else 1_000_000 for field in METRICS}
    return message(
        [
            GpuSample(
                replica="replica-1",
                gpu=f"GPU-{gpu:032x}",
                at_unix_ns=NOW_UNIX_NS + second * SECOND_NS,
                source=GpuSource.NVML,
                model_name="NVIDIA H100 80GB HBM3",
                throttle_reasons=throttle_reasons,
                **{**values, "power_w": 500.0 + second},  # type: ignore[arg-type]  # each of its field's kind
            )
            for gpu in range(gpus)
        ]
    )
