"""Convert spans that report a lookup in a cache of answers or embeddings. Pure.

The names are in `telemetry/cache_aliases.py`. Invalid values are left out and counted.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import DroppedValue
from collector.normalise.batch import NormalisedBatch
from collector.normalise.client_spans import GENERATES, OPERATION
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import SPAN_ID_BYTES, span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import (
    MAX_DURATION_S,
    AttributeReader,
    attributes_of,
    seconds,
)
from telemetry.cache_aliases import (
    CACHES,
    HEADER_PREFIX,
    CacheNames,
    Reported,
    decisive,
    number_of,
    reported_by,
)
from telemetry.cache_lookups import CacheKind, CacheLookup

EMBEDS: Final = frozenset({"embeddings", "embedding"})
TENANT: Final = (
    "tailspan.tenant",
    "http.request.header.x-tenant-id",
    "litellm.team.alias",
    "litellm.team.id",
)
ROUTE: Final = ("http.route", "litellm.request.route")
PATH: Final = ("url.path", "url.full", "http.target", "http.url")
"""Attributes that contain a path or a URL. They are used if the span has no route. The query of a
URL is not stored."""
MODEL: Final = ("gen_ai.request.model", "gen_ai.response.model", "llm.request.model")
MODEL_PATHS: Final = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/embeddings",
    ":generateContent",
    ":streamGenerateContent",
)
"""A path with one of these endings is a call to a model. Only the responses to such calls may have
`models_only` headers."""


def _header(name: str) -> tuple[str, str]:
    return f"{HEADER_PREFIX}{name}", f"{HEADER_PREFIX}{name.replace('-', '_')}"


_HEADERS: Final = {
    name: _header(name) for each in CACHES for name in (*each.headers, *each.similarity_headers)
}
NAMES: Final = frozenset(
    name
    for each in CACHES
    for name in (
        *each.attributes,
        *each.similarity_attributes,
        *(attribute for header in each.headers for attribute in _HEADERS[header]),
        *(attribute for header in each.similarity_headers for attribute in _HEADERS[header]),
    )
)


def reports_a_lookup(span: Span) -> bool:
    """Whether a cache set one of the span's attributes."""
    return not NAMES.isdisjoint(pair.key for pair in span.attributes)


def lookup_of_span(
    span: Span, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch
) -> CacheLookup | None:
    """The lookup that a span reports, or None if no value is valid. Counts invalid values in
    `batch`.

    Raises:
        RefusalError: an id or a time is invalid.
    """
    attributes = attributes_of(span.attributes)
    reader = AttributeReader(attributes)
    operation = _text(reader, attributes, OPERATION)
    path = _path(reader, attributes)
    calls_a_model = operation in GENERATES | EMBEDS or (path or "").endswith(MODEL_PATHS)
    reports = [_reported(names, attributes, calls_a_model) for names in CACHES]
    known = [each for each in reports if each is not None]
    if invalid := sum(len(each.invalid) for each in known):
        batch.dropped_values[DroppedValue.CACHE_VALUE] += invalid
    reported = decisive(known)
    if reported is None or reported.result is None:
        return None
    duration_s = _duration_s(span, now_unix_ns)
    embeds = operation in EMBEDS or (path or "").endswith("/embeddings")
    lookup_s = _lookup_s(reported, attributes, batch)
    if lookup_s is None and not calls_a_model and path is None:
        lookup_s = duration_s  # the span contains only the lookup
    lookup = CacheLookup(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        parent_span_id=_parent(span),
        at_unix_ns=span.start_time_unix_nano,
        result=reported.result,
        cache=reported.cache,
        kind=CacheKind.EMBEDDING if embeds else reported.kind,
        duration_s=duration_s,
        lookup_s=lookup_s,
        similarity=reported.similarity,
        tenant=_text(reader, attributes, TENANT),
        route=_route(reader, attributes) or path,
        model=_text(reader, attributes, MODEL),
        service=origin.replica,
        region=origin.region,
    )
    batch.truncated_texts += reader.truncated_texts
    return lookup


def _reported(
    names: CacheNames, attributes: Mapping[str, AnyValue], calls_a_model: bool
) -> Reported | None:
    headers_count = calls_a_model or not names.models_only

    def get(name: str, is_header: bool) -> object:
        return None if is_header and not headers_count else _value(attributes, name, is_header)

    return reported_by(names, get)


def _parent(span: Span) -> str | None:
    parent = span.parent_span_id
    return parent.hex() if len(parent) == SPAN_ID_BYTES and any(parent) else None


def _duration_s(span: Span, now_unix_ns: int) -> float:
    start_unix_ns, end_unix_ns = start_and_end(span, now_unix_ns)
    return seconds((end_unix_ns - start_unix_ns) / 1e9)


def _lookup_s(
    reported: Reported, attributes: Mapping[str, AnyValue], batch: NormalisedBatch
) -> float | None:
    names: CacheNames = next(each for each in CACHES if each.cache == reported.cache)
    total_s = None
    for name in names.milliseconds:
        value = _value(attributes, name, is_header=False)
        if value is None:
            continue
        milliseconds = number_of(value)
        if milliseconds is None or not 0 <= milliseconds / 1e3 <= MAX_DURATION_S:
            batch.dropped_values[DroppedValue.CACHE_VALUE] += 1
            return None
        total_s = (total_s or 0.0) + milliseconds / 1e3
    return total_s


def _value(attributes: Mapping[str, AnyValue], name: str, is_header: bool) -> object:
    if not is_header:
        return _scalar_value(attributes[name]) if name in attributes else None
    given = next((attributes[each] for each in _HEADERS[name] if each in attributes), None)
    if given is None:
        return None
    return ",".join(_texts(given)) or _scalar_value(given)


def _scalar_value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind in ("string_value", "bool_value", "int_value", "double_value"):
        plain: object = getattr(value, kind)
        return plain
    return ()


def _texts(value: AnyValue) -> Iterator[str]:
    if value.WhichOneof("value") == "array_value":
        for each in value.array_value.values[:_MAX_VALUES]:
            yield each.string_value
    elif value.WhichOneof("value") == "string_value":
        yield value.string_value


_MAX_VALUES: Final = 16
"""Maximum number of values that are read from one header."""


def _text(
    reader: AttributeReader, attributes: Mapping[str, AnyValue], names: tuple[str, ...]
) -> str | None:
    """The value of the first name that has a text. If the value is an array, the result is its
    first element."""
    for name in names:
        if name not in attributes:
            continue
        found = reader.label(name) or reader.cleaned(next(_texts(attributes[name]), ""))
        if found:
            return found
    return None


def _route(reader: AttributeReader, attributes: Mapping[str, AnyValue]) -> str | None:
    """The route of a call. LiteLLM reports a path, possibly with a query."""
    route = _text(reader, attributes, ROUTE)
    return route and (route.split("?")[0].split("#")[0] or None)


def _path(reader: AttributeReader, attributes: Mapping[str, AnyValue]) -> str | None:
    """The path of a call. The query is removed, because it may contain a credential."""
    address = _text(reader, attributes, PATH)
    if address is None:
        return None
    try:
        return urlsplit(address).path or None
    except ValueError:
        return None
