"""Convert spans of other instrumentations to request timelines, with one table per source. Pure.

Only the attributes in a table are read, so prompts and responses are never read.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.drop_reasons import Refusal
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.values import (
    MAX_DURATION_S,
    AttributeReader,
    RefusalError,
    attributes_of,
    count,
    finite,
    instant,
    seconds,
)
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

Names = tuple[str, ...]
"""Names of an attribute. The first name that is present is used."""

SLACK_S: Final = 1e-3
"""The sum of the phases, and the TTFT, may exceed a request's duration by this many seconds,
because different clocks measure them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTable:
    """Describes the spans of one source. The table defines how to recognise the spans, and which
    attributes contain each field.

    Attributes:
        latencies: durations in seconds. A value that is too large for seconds is in nanoseconds.
        counts: numbers of tokens.
        max_output_tokens: the token limit of the request.
        first_chunk_events: names of the span event for a chunk of the response.
    """

    source: Source
    basis: Basis
    is_request: Callable[[str, Span, Mapping[str, AnyValue]], bool]
    latencies: Mapping[str, Names]
    counts: Mapping[str, Names]
    texts: Mapping[str, Names]
    flags: Mapping[str, Names]
    max_output_tokens: Names
    finish_reasons: Names
    first_chunk_events: Names = ()


def read_foreign(
    span: Span,
    scope: str,
    origin: ResourceLabels,
    now_unix_ns: int,
    tables: tuple[SpanTable, ...],
) -> tuple[RequestTimeline, int] | None:
    """Return the request of a span and the number of truncated texts. The first table that
    recognises the span is used.

    Raises:
        RefusalError: the span is a request, but invalid.
    """
    attributes = attributes_of(span.attributes)
    table = next((each for each in tables if each.is_request(scope, span, attributes)), None)
    if table is None:
        return None
    given = _Given(attributes)
    return _timeline(span, table, given, origin, now_unix_ns), given.reader.truncated_texts


class _Given:
    """A span's attributes. Each method uses the first of several names that is present."""

    def __init__(self, attributes: Mapping[str, AnyValue]) -> None:
        self._attributes = attributes
        self.reader = AttributeReader(attributes)

    def named(self, names: Names) -> str | None:
        """The first name that is present, or None."""
        return next((name for name in names if name in self._attributes), None)

    def text(self, names: Names) -> str | None:
        """A value as text. Some clients send numbers or arrays instead."""
        name = self.named(names)
        return None if name is None else self.reader.label(name)

    def flag(self, names: Names) -> bool | None:
        name = self.named(names)
        return None if name is None else self.reader.flag(name)

    def count(self, names: Names) -> int | None:
        """A whole number, even if it was sent as 12.0."""
        value = self.number(names)
        if value is None:
            return None
        if value != math.floor(value):
            raise RefusalError(Refusal.WRONG_TYPE)
        return count(int(value))

    def number(self, names: Names) -> float | None:
        """A finite, non-negative number."""
        name = self.named(names)
        if name is None:
            return None
        value = self.reader.scalar(name)
        if value is None or isinstance(value, str | bool):
            raise RefusalError(Refusal.WRONG_TYPE)
        return finite(value)

    def texts(self, names: Names) -> list[str]:
        """A list of texts, from an array, a single text, or a JSON array as text."""
        name = self.named(names)
        if name is None:
            return []
        value = self._attributes[name]
        if value.WhichOneof("value") == "array_value":
            return [each.string_value for each in value.array_value.values]
        text = self.reader.text(name) or ""
        if text.startswith("["):
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                return []
            return [each for each in found if isinstance(each, str)]
        return [text] if text else []


def _timeline(
    span: Span, table: SpanTable, given: _Given, origin: ResourceLabels, now_unix_ns: int
) -> RequestTimeline:
    start_unix_ns = instant(span.start_time_unix_nano, now_unix_ns)
    if span.end_time_unix_nano < start_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    length_s = seconds((span.end_time_unix_nano - start_unix_ns) / 1e9)
    output_tokens = given.count(table.counts.get("output_tokens", ()))
    latencies = _latencies(given, table, output_tokens)
    e2e_s = latencies.pop("e2e_s", None)
    if e2e_s is None:
        e2e_s = length_s
    # A reported latency can end later than the span. Neither end may be in the future.
    instant(max(span.end_time_unix_nano, start_unix_ns + int(e2e_s * 1e9)), now_unix_ns)
    phases_s = [latencies.get(phase) or 0.0 for phase in ("queue_s", "prefill_s", "decode_s")]
    if sum(phases_s) > e2e_s + SLACK_S:
        raise RefusalError(Refusal.PHASES_DO_NOT_SUM)
    if "ttft_s" not in latencies:
        latencies["ttft_s"] = _first_chunk_s(span, table.first_chunk_events)
    if (latencies["ttft_s"] or 0.0) > e2e_s + SLACK_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    failed = span.status.code == Status.STATUS_CODE_ERROR or bool(given.text(("error.type",)))
    fields: dict[str, Any] = {
        **latencies,
        **{field: given.count(names) for field, names in table.counts.items()},
        **{field: given.text(names) for field, names in table.texts.items()},
        **{field: given.flag(names) for field, names in table.flags.items()},
    }
    fields.setdefault("request_id", None)
    return RequestTimeline(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        received_unix_ns=start_unix_ns,
        e2e_s=e2e_s,
        outcome=Outcome.ERROR if failed else _outcome(given, table, output_tokens),
        source=Source.SIMULATOR if origin.simulated else table.source,
        basis=table.basis,
        region=origin.region,
        # The resource of a client's span describes the client, not the replica.
        replica=None if table.basis is Basis.CLIENT else origin.replica,
        **fields,
    )


def _latencies(
    given: _Given, table: SpanTable, output_tokens: int | None
) -> dict[str, float | None]:
    found: dict[str, float] = {}
    for field, names in table.latencies.items():
        name = given.named(names)
        value = None if name is None else given.reader.scalar(name)
        if value is None:
            continue
        if isinstance(value, str | bool):
            raise RefusalError(Refusal.WRONG_TYPE)
        # For a request without output tokens, vLLM computes these latencies from a timestamp of 0,
        # so they are wrong.
        if output_tokens == 0 and field in ("ttft_s", "prefill_s", "decode_s"):
            continue
        found[field] = finite(value)
    # Some forks send nanoseconds. No request takes a week (604,800 s) or less than 604,800 ns (0.6
    # ms). So values are in nanoseconds if the longest latency is above 604,800.
    unit_s = 1e-9 if max(found.values(), default=0.0) > MAX_DURATION_S else 1.0
    return {field: seconds(value * unit_s) for field, value in found.items()}


def _outcome(given: _Given, table: SpanTable, output_tokens: int | None) -> Outcome:
    reasons = given.texts(table.finish_reasons)
    if reasons:
        if "length" in reasons or "max_tokens" in reasons:
            return Outcome.LENGTH
        return Outcome.ABORT if "abort" in reasons else Outcome.STOP
    most = given.count(table.max_output_tokens)
    if most is not None and output_tokens is not None and output_tokens >= most > 0:
        return Outcome.LENGTH
    return Outcome.STOP


def _first_chunk_s(span: Span, events: Names) -> float | None:
    at = [each.time_unix_nano for each in span.events if each.name in events]
    return seconds((min(at) - span.start_time_unix_nano) / 1e9) if at else None
