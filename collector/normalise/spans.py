"""Converts OTLP trace messages to request timelines, probes and lookups in caches.

Pure. Every span is stored, skipped (not a request) or refused (an invalid request).
`plugin_spans.py` reads the spans of Tailspan's plugin, `probe_spans.py` reads the spans of the
prober, and `span_tables.py` reads all other spans, with the tables in `FOREIGN`. `cache_spans.py`
reads lookups from spans outside the engine. A hit is no request, because no model answered it.
"""

from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import Skip
from collector.normalise.batch import Batch
from collector.normalise.cache_spans import lookup_of_span, reports_a_lookup
from collector.normalise.client_spans import CLIENT
from collector.normalise.engine_spans import SGLANG, VLLM
from collector.normalise.otlp_envelope import decoded, unfold
from collector.normalise.plugin_spans import row_of_span
from collector.normalise.probe_spans import probe_of_span
from collector.normalise.resources import Origin, origin_of
from collector.normalise.span_tables import read_foreign
from collector.normalise.values import RefusalError
from telemetry.cache_lookups import CacheResult
from telemetry.request_rows import Row, row_of
from telemetry.requests import Basis

FOREIGN: Final = (VLLM, SGLANG, CLIENT)
"""The tables of all sources except Tailspan's plugin."""


def normalise_spans(body: bytes, now_unix_ns: int) -> Batch:
    """Return the requests of an OTLP trace message.

    Raises:
        MalformedError: the body is not an OTLP trace message.
        TooLargeError: the message has too many items.
    """
    batch = Batch()
    keep = batch.requests.rows.append
    for resource, scope, spans in unfold(body):
        origin = origin_of(resource)
        batch.truncated_texts += origin.truncated_texts
        for span in spans:
            try:
                if scope == names.SCOPE:
                    row = row_of_span(span, origin, now_unix_ns, batch)
                elif scope == names.PROBE_SCOPE:
                    _probe(span, origin, now_unix_ns, batch)
                    continue
                else:
                    row, is_a_lookup = _foreign(span, scope, origin, now_unix_ns, batch)
                    if row is None and is_a_lookup:
                        continue
            except RefusalError as refusal:
                batch.refused[refusal.reason] += 1
                continue
            if row is None:
                batch.skipped[Skip.NOT_A_REQUEST] += 1
            else:
                keep(row)
    batch.accepted = len(batch.requests) + len(batch.probes) + sum(batch.lookup_spans)
    return batch


def _probe(raw: bytes, origin: Origin, now_unix_ns: int, batch: Batch) -> None:
    probe, truncated_texts = probe_of_span(decoded(Span, raw), origin, now_unix_ns)
    batch.truncated_texts += truncated_texts
    batch.probes.append(probe)


def _foreign(
    raw: bytes, scope: str, origin: Origin, now_unix_ns: int, batch: Batch
) -> tuple[Row | None, bool]:
    """Return the request of a span, if any, and whether the span is a lookup."""
    span = decoded(Span, raw)
    found = read_foreign(span, scope, origin, now_unix_ns, FOREIGN)
    outside = found is None or found[0].basis is Basis.CLIENT
    lookup = None
    if outside and reports_a_lookup(span):
        lookup = lookup_of_span(span, origin, now_unix_ns, batch)
    is_a_request = found is not None and (lookup is None or lookup.result is not CacheResult.HIT)
    if lookup is not None:
        batch.lookups.append(lookup)
        batch.lookup_spans.append(int(not is_a_request))
    if found is None or not is_a_request:
        return None, lookup is not None
    request, truncated_texts = found
    batch.truncated_texts += truncated_texts
    return row_of(request), lookup is not None
