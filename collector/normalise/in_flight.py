"""Convert OTLP log records to reports of requests in flight."""

from typing import Final

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.plugin_spans import TOLERANCE_S
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.values import AttributeReader, RefusalError, instant, seconds
from telemetry.in_flight import REPORTED_FROM_S, InFlightRequest
from telemetry.requests import Source

_YOUNGEST_S: Final = REPORTED_FROM_S - TOLERANCE_S


def in_flight_of(
    record: LogRecord, reader: AttributeReader, origin: ResourceLabels, now_unix_ns: int
) -> InFlightRequest:
    """The report of a request in flight in a log record.

    Raises:
        RefusalError: the record's values contradict each other, or its ids are missing.
    """
    if origin.replica is None:
        raise RefusalError(Refusal.MISSING_REPLICA)
    seen_unix_ns = instant(record.time_unix_nano, now_unix_ns)
    age_s, ttft_s = reader.seconds(names.IN_FLIGHT_AGE), reader.seconds(names.TTFT)
    if age_s is None:
        raise RefusalError(Refusal.MISSING_VALUE)
    before_s = reader.seconds(names.REPORTED_IN_FLIGHT)
    if age_s < _YOUNGEST_S:
        raise RefusalError(Refusal.TOO_YOUNG)
    if max(ttft_s or 0.0, before_s or 0.0) > age_s + TOLERANCE_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    return InFlightRequest(
        span_id=span_id_of(record),
        trace_id=trace_id_of(record),
        received_unix_ns=instant(seen_unix_ns - round(seconds(age_s) * 1e9), now_unix_ns),
        seen_unix_ns=seen_unix_ns,
        source=Source.SIMULATOR if origin.simulated else Source.INSTRUMENTATION,
        ttft_s=ttft_s,
        reported_in_flight_s=before_s,
        operation=reader.text(names.OPERATION_NAME),
        model=reader.text(names.REQUEST_MODEL),
        lora=reader.text(names.LORA),
        route=reader.text(names.HTTP_ROUTE),
        tenant=reader.text(names.TENANT),
        region=origin.region,
        replica=origin.replica,
        config=reader.text(names.CONFIG),
        streamed=reader.flag(names.STREAMED),
        prompt_tokens=reader.count(names.INPUT_TOKENS),
        engine=reader.count(names.ENGINE),
    )
