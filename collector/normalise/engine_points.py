"""OTLP data points → samples of engines, and of GPUs by `gpu_points.py`.

Pure. Points of one (replica, engine, process, instant) make one sample; a refused point
costs its own value and leaves the others. Nothing that can be decoded makes this raise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import Batch
from collector.normalise.data_points import Field, measured, points_in, value_of
from collector.normalise.gpu_points import FIELDS as GPU_FIELDS
from collector.normalise.gpu_points import GpuPoints
from collector.normalise.otlp_envelope import decoded, not_too_many, unfold
from collector.normalise.resources import Origin, origin_of
from collector.normalise.values import MAX_TOTAL, Reader, RefusalError, attributes_of, instant
from telemetry.engines import EngineSample
from telemetry.requests import Source

FIELDS: Final[Mapping[str, Field]] = {
    names.WAITING: Field("waiting", "gauge", "count"),
    names.RUNNING: Field("running", "gauge", "count"),
    names.DEFERRED: Field("deferred", "gauge", "count"),
    names.FETCHING_KV: Field("fetching_kv", "gauge", "count"),
    names.WAITING_LORAS: Field("waiting_loras", "gauge", "count"),
    names.RUNNING_LORAS: Field("running_loras", "gauge", "count"),
    names.DRAFTS: Field("drafts_total", "sum", "count"),
    names.DRAFT_TOKENS: Field("draft_tokens_total", "sum", "count"),
    names.ACCEPTED_TOKENS: Field("accepted_tokens_total", "sum", "count"),
    names.MODELLED_FLOPS: Field("modelled_flops_total", "sum", "number"),
    names.MODELLED_READ_BYTES: Field("modelled_read_bytes_total", "sum", "number"),
    names.MODELLED_WRITE_BYTES: Field("modelled_write_bytes_total", "sum", "number"),
    names.IN_FLIGHT: Field("in_flight", "gauge", "count"),
    names.OLDEST_REQUEST_AGE: Field("oldest_request_age_s", "gauge", "seconds"),
    names.LAST_STEP_AGE: Field("last_step_age_s", "gauge", "seconds"),
    names.KV_USAGE: Field("kv_usage_ratio", "gauge", "ratio"),
    names.LONGEST_STEP: Field("longest_step_s", "gauge", "seconds"),
    names.STEP_MODEL[0]: Field("step_model_base_s", "gauge", "seconds"),
    names.STEP_MODEL[1]: Field("step_model_per_prefill_token_s", "gauge", "seconds"),
    names.STEP_MODEL[2]: Field("step_model_per_prefill_attention_s", "gauge", "seconds"),
    names.STEP_MODEL[3]: Field("step_model_per_context_token_s", "gauge", "seconds"),
    names.STEP_MODEL[4]: Field("step_model_per_decode_s", "gauge", "seconds"),
    names.STEP_MODEL_ERROR: Field("step_model_error_ratio", "gauge", "number"),
    names.STEP_MODEL_R_SQUARED: Field("step_model_r_squared", "gauge", "score"),
    names.STEPS: Field("steps_total", "sum", "count"),
    names.BUSY_TIME: Field("busy_s_total", "sum", "seconds"),
    names.STALL_TIME: Field("stall_s_total", "sum", "seconds"),
    names.SCHEDULED_PREFILL_TOKENS: Field("scheduled_prefill_tokens_total", "sum", "count"),
    names.PREFILL_ATTENTION: Field("prefill_attention_total", "sum", "number"),
    names.CONTEXT_TOKENS: Field("context_tokens_total", "sum", "count"),
    names.SCHEDULED_DECODES: Field("decodes_total", "sum", "count"),
    names.PREFILL_TOKENS: Field("prefill_tokens_total", "sum", "count"),
    names.DECODE_TOKENS: Field("decode_tokens_total", "sum", "count"),
    names.PREFIX_CACHE_QUERIES: Field("prefix_cache_queries_tokens_total", "sum", "count"),
    names.PREFIX_CACHE_HITS: Field("prefix_cache_hits_tokens_total", "sum", "count"),
    names.EXTERNAL_CACHE_QUERIES: Field("external_cache_queries_tokens_total", "sum", "count"),
    names.EXTERNAL_CACHE_HITS: Field("external_cache_hits_tokens_total", "sum", "count"),
    names.LOCAL_CACHED_PROMPT_TOKENS: Field("local_cached_prompt_tokens_total", "sum", "count"),
    names.EXTERNAL_CACHED_PROMPT_TOKENS: Field(
        "external_cached_prompt_tokens_total", "sum", "count"
    ),
    names.KV_TRANSFER_BYTES: Field("kv_transfer_bytes_total", "sum", "count"),
    names.KV_TRANSFER_TIME: Field("kv_transfer_s_total", "sum", "seconds"),
    names.KV_TRANSFER_FAILURES: Field("kv_transfer_failures_total", "sum", "count"),
    names.ENGINE_PREEMPTIONS: Field("preemptions_total", "sum", "count"),
    names.HOST_CPUS: Field("host_cpus", "gauge", "count"),
    names.PROCESS_CPU_TIME: Field("process_cpu_s_total", "sum", "seconds"),
    names.CORE_CPU_TIME: Field("core_cpu_s_total", "sum", "seconds"),
    names.HOST_BUSY_TIME: Field("host_cpu_busy_s_total", "sum", "seconds"),
    names.HOST_STEAL_TIME: Field("host_cpu_steal_s_total", "sum", "seconds"),
    names.SPANS_DROPPED: Field("spans_dropped_total", "sum", "count"),
    names.HOOK_FAILURES: Field("hook_failures_total", "sum", "count"),
    names.ACCOUNTS_DROPPED: Field("accounts_dropped_total", "sum", "count"),
}
"""The one table from the wire's metric names to the sample's fields."""


class _Key(NamedTuple):
    replica: str
    engine: int
    process: int
    at_unix_ns: int


@dataclass(slots=True)
class _Gathered:
    """A sample in the making. Points that differ in their hook, or in the
    reason of a drop, add up to one total."""

    origin: Origin
    model: str | None = None
    config: str | None = None
    started_unix_ns: int = 0
    points: int = 0
    values: dict[tuple[str, str | None], float] = field(default_factory=dict)


def normalise_points(body: bytes, now_unix_ns: int) -> Batch:
    """The samples of engines and GPUs that a metrics export tells of.

    Raises:
        MalformedError: not a metrics export.
        TooLargeError: more in it than there may be.
    """
    batch = Batch()
    gathered: dict[_Key, _Gathered] = {}
    gpus = GpuPoints()
    points = 0
    for resource, scope, metrics in unfold(body):
        origin = origin_of(resource)
        batch.truncated_texts += origin.truncated_texts
        for metric in (decoded(Metric, raw) for raw in metrics):
            # A metric of nothing but empty points, two bytes each, is many items, too.
            points += (number := points_in(metric))
            not_too_many(points)
            if scope != names.SCOPE:
                batch.skipped[Skip.NOT_OURS] += number
            elif metric.name in FIELDS:
                target = FIELDS[metric.name]
                for point in measured(batch, metric, target):
                    try:
                        _take(batch, gathered, target, point, origin, now_unix_ns)
                    except RefusalError as refusal:
                        batch.refused[refusal.reason] += 1
                    else:
                        batch.accepted += 1
            elif metric.name in GPU_FIELDS:
                gpus.take(batch, metric, origin, now_unix_ns)
            else:
                batch.skipped[Skip.UNKNOWN_METRIC] += number
    batch.samples = [_sample(key, each) for key, each in gathered.items()]
    batch.sample_points = [each.points for each in gathered.values()]
    batch.gpus = gpus.samples()
    batch.gpu_points = gpus.points()
    return batch


def _take(
    batch: Batch,
    gathered: dict[_Key, _Gathered],
    target: Field,
    point: NumberDataPoint,
    origin: Origin,
    now_unix_ns: int,
) -> None:
    reader = Reader(attributes_of(point.attributes))
    engine = reader.count(names.ENGINE)
    if engine is None:
        raise RefusalError(Refusal.MISSING_ENGINE)
    if origin.replica is None:
        raise RefusalError(Refusal.MISSING_REPLICA)
    if origin.process is None:
        raise RefusalError(Refusal.MISSING_PROCESS)
    at_unix_ns = instant(point.time_unix_nano, now_unix_ns)
    # OpenTelemetry's exporters give a gauge no start: only totals count from somewhere.
    started_unix_ns = point.start_time_unix_nano
    if started_unix_ns == 0 and target.shape == "sum":
        raise RefusalError(Refusal.MISSING_START)
    if started_unix_ns and instant(started_unix_ns, now_unix_ns) > at_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    value = value_of(point, target)
    model, config = reader.text(names.REQUEST_MODEL), reader.text(names.CONFIG)
    part = reader.text(names.HOOK) or reader.text(names.DROP_REASON)

    key = _Key(origin.replica, engine, origin.process, at_unix_ns)
    each = gathered.setdefault(key, _Gathered(origin))
    each.model = model or each.model
    each.config = config or each.config
    each.started_unix_ns = max(each.started_unix_ns, started_unix_ns)
    each.points += 1
    if part != names.UNAUTHENTICATED:  # clients the server does not know: no request is missed
        each.values[target.name, part] = value
    batch.truncated_texts += reader.truncated_texts


def _sample(key: _Key, each: _Gathered) -> EngineSample:
    return EngineSample(
        **key._asdict(),
        # With gauges alone nothing has been counted yet, so counting begins now.
        started_unix_ns=each.started_unix_ns or key.at_unix_ns,
        simulated=each.origin.simulated,
        source=Source.SIMULATOR if each.origin.simulated else Source.INSTRUMENTATION,
        model=each.model,
        region=each.origin.region,
        config=each.config,
        **dict(_totals(each)),
    )


def _totals(each: _Gathered) -> Iterator[tuple[str, Any]]:
    sums: dict[str, float] = {}
    for (name, _part), value in each.values.items():
        sums[name] = min(sums.get(name, 0) + value, MAX_TOTAL)
    yield from sums.items()
