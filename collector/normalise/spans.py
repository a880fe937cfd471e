"""Convert OTLP trace messages to requests, cold starts, probes, operations and lookups. Pure.

A client's call is both a request and an operation. If a cache answered the call, it is only an
operation.
"""

from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.cache_spans import lookup_of_span, reports_a_lookup
from collector.normalise.client_spans import CLIENT
from collector.normalise.dynamo_spans import request_of_dynamo
from collector.normalise.engine_spans import SGLANG, VLLM
from collector.normalise.operation_spans import operation_of_span
from collector.normalise.otlp_envelope import decoded, unfold
from collector.normalise.plugin_spans import row_of_span
from collector.normalise.probe_spans import probe_of_span
from collector.normalise.resources import ResourceLabels, origin_of
from collector.normalise.span_tables import read_foreign
from collector.normalise.start_spans import start_of_span
from collector.normalise.values import RefusalError
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.cache_lookups import CacheResult
from telemetry.request_rows import Row, row_of
from telemetry.requests import Basis

FOREIGN: Final = (VLLM, SGLANG, CLIENT)


def normalise_spans(body: bytes, now_unix_ns: int) -> NormalisedBatch:
    """The rows of an OTLP trace message.

    Raises:
        MalformedError: the body is not an OTLP trace message.
        TooLargeError: it has too many items.
    """
    batch = NormalisedBatch()
    operations = batch.operations
    keep = batch.requests.rows.append
    for resource, scope, spans in unfold(body):
        origin = origin_of(resource)
        batch.truncated_texts += origin.truncated_texts
        for span in spans:
            try:
                if scope == names.SCOPE:
                    row = row_of_span(span, origin, now_unix_ns, batch)
                    if row is None:
                        _cold_start(span, origin, now_unix_ns, batch)
                        continue
                elif scope == names.PROBE_SCOPE:
                    _probe(span, origin, now_unix_ns, batch)
                    continue
                else:
                    row, operation, is_a_lookup = _read_other_span(
                        span, scope, origin, now_unix_ns, batch
                    )
                    if operation is not None:
                        operations.append(operation)
                    if row is None and (operation is not None or is_a_lookup):
                        continue
            except RefusalError as refusal:
                batch.refused[refusal.reason] += 1
                continue
            if row is None:
                batch.skipped[Skip.NOT_A_REQUEST] += 1
            else:
                keep(row)
    # A client's call is both a request and an operation. Count it once.
    calls = sum(each.operation is Operation.CALL for each in operations)
    batch.accepted = len(batch.requests) + len(batch.probes) + len(operations) - calls
    batch.accepted += sum(batch.lookup_spans) + len(batch.cold_starts)
    return batch


def _cold_start(
    raw: bytes, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch
) -> None:
    found = start_of_span(decoded(Span, raw), origin, now_unix_ns)
    if found is None:
        raise RefusalError(Refusal.MISSING_OUTCOME)
    batch.cold_starts.append(found[0])
    batch.truncated_texts += found[1]


def _probe(raw: bytes, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch) -> None:
    batch.probes.append(probe_of_span(decoded(Span, raw), origin, now_unix_ns, batch))


def _read_other_span(
    raw: bytes, scope: str, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch
) -> tuple[Row | None, ApplicationOperation | None, bool]:
    """Read a span that neither Tailspan's plugin nor its prober sent.

    Returns:
        The request or None, the operation or None, and whether the span is a lookup in a cache.
    """
    span = decoded(Span, raw)
    found = request_of_dynamo(span, origin, now_unix_ns) or read_foreign(
        span, scope, origin, now_unix_ns, FOREIGN
    )
    if found is not None and found[0].basis is not Basis.CLIENT:
        batch.truncated_texts += found[1]
        return row_of(found[0]), None, False
    lookup = None
    if reports_a_lookup(span):
        lookup = lookup_of_span(span, origin, now_unix_ns, batch)
    hit = lookup is not None and lookup.result is CacheResult.HIT
    if found is not None and hit:  # no model was called
        row, operation = None, None
    else:
        operation = operation_of_span(span, scope, origin, now_unix_ns, call=found is not None)
        row = None if found is None else row_of(found[0])
        batch.truncated_texts += 0 if found is None else found[1]
    if lookup is not None:
        batch.lookups.append(lookup)
        batch.lookup_spans.append(int(row is None and operation is None))
    return row, operation, lookup is not None
