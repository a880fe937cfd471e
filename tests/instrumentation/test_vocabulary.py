from collections.abc import Iterator

from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names, vocabulary
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.parts import HeldParts, KvLoad, RequestPhaseParts, RequestQueueParts
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.settings import resource_attributes

from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.fields import fields_of, on_the_wire
from telemetry.gpus import GpuSample
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline

REQUEST, SAMPLE, GPU, PROBE, START = (
    on_the_wire(noun) for noun in (RequestTimeline, EngineSample, GpuSample, Probe, ColdStart)
)
NO_NAMES = {
    names.SCOPE,
    names.PROBE_SCOPE,
    names.PROVIDER_VLLM,
    names.UNAUTHENTICATED,
    names.START,
}
"""Strings in names.py that are values, not names."""

FULL = RequestRecord(
    received=1.0,
    arrived=1.1,
    handed=1.15,
    queued=1.2,
    scheduled=1.3,
    preempted_at=[1.4],
    resumed_at=[1.5],
    first_token=1.6,
    first_byte=1.7,
    first_content=1.75,
    last_token=1.8,
    delivered=1.9,
    wall_offset_ns=0,
    outcome="stop",
    basis="http",
    request_id="r",
    model="m",
    lora="l",
    route="/v1/chat/completions",
    tenant="t",
    config="c",
    engine=0,
    streamed=True,
    http_status=200,
    error_type="e",
    prompt_tokens=3,
    cached_tokens=0,
    cache_write_tokens=3,
    external_cached_tokens=0,
    kv_load=KvLoad(0, "host"),
    output_tokens=2,
    reasoning_tokens=1,
    tool_call_tokens=0,
    content_tokens=1,
    prefix_ladder="16:AAAA",
    preemptions=1,
    reported_in_flight_s=0.5,
    itl_max_s=0.2,
    others_prefill_tokens_max=512,
    billed_s=0.2,
    wasted_s=0.0,
    queue_parts=RequestQueueParts(0.1, 0.0, 0.0, 0.0, 0.0),
    held_parts=HeldParts(0.0, 0.0, 0.0),
    prefill_parts=RequestPhaseParts(0.1, 0.1, 0.1, 0.0, 0.0),
    encoder_s=0.1,
    decode_parts=RequestPhaseParts(0.1, 0.1, 0.0, 0.0, 0.0),
    waiting_at_arrival=0,
    running_at_arrival=0,
    kv_usage_at_arrival=0.0,
)


TABLES = (
    vocabulary.RESOURCE,
    vocabulary.SPAN_ATTRIBUTES,
    vocabulary.SPAN_EVENTS,
    vocabulary.METRIC_ATTRIBUTES,
    vocabulary.GPU_ATTRIBUTES,
    vocabulary.EVENTS,
    vocabulary.EVENT_ATTRIBUTES,
)


def _spelled() -> Iterator[str]:
    for constant, value in vars(names).items():
        if constant.isupper() and isinstance(value, str | tuple) and value not in NO_NAMES:
            yield from (value,) if isinstance(value, str) else value


def _names(*tables: tuple[tuple[str, ...], ...]) -> list[str]:
    return [row[0] for table in tables for row in table]


def test_every_name_has_its_meaning() -> None:
    assert {*_names(*TABLES), *REQUEST, *SAMPLE, *GPU, *PROBE, *START} == set(_spelled())


def test_no_name_is_explained_twice_in_one_table() -> None:
    for noun, wired in ((RequestTimeline, REQUEST), (EngineSample, SAMPLE), (GpuSample, GPU)):
        assert len(wired) == sum(each.about.wire is not None for each in fields_of(noun))
    assert not set(_names(vocabulary.SPAN_ATTRIBUTES)) & set(REQUEST)


def test_a_span_has_exactly_the_vocabulary() -> None:
    span = span_of(FULL, Resource({}))
    assert set(span.attributes or {}) == {*REQUEST, *_names(vocabulary.SPAN_ATTRIBUTES)}
    assert {event.name for event in span.events} == set(_names(vocabulary.SPAN_EVENTS))


def test_a_resource_has_only_the_vocabulary() -> None:
    assert set(resource_attributes({}, 8000)) <= set(_names(vocabulary.RESOURCE))


def test_metrics_are_those_with_a_unit() -> None:
    assert set(SAMPLE) == set(names.UNITS)
    assert set(GPU) == set(names.GPU_UNITS)


def test_a_row_has_every_field() -> None:
    for table in TABLES:
        for row in table:
            assert all(row), row.name
            assert row.meaning.endswith("."), row.name
    for noun in (RequestTimeline, EngineSample, GpuSample, Probe):
        for field in fields_of(noun):
            assert all((field.about.unit, field.about.meaning, field.about.source)), field.name
            assert field.about.meaning.endswith("."), field.name
