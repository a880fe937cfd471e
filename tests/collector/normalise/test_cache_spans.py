"""Cache lookups in spans with each cache's documented attributes, and malformed ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import DroppedValue, Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.spans import normalise_spans
from telemetry.cache_aliases import CACHES, number_of, similarity_of, status_of
from telemetry.cache_lookups import CacheKind, CacheLookup, CacheResult
from tests.cache_spans import CALL, HEADER, HTTP, SHAPES, message, of_every_cache, span

NOW_UNIX_NS = 1_796_000_000 * 10**9
AT = NOW_UNIX_NS - 10**9


def read(*spans: Any) -> NormalisedBatch:
    return normalise_spans(message(*spans).SerializeToString(), NOW_UNIX_NS)


def lookup(attributes: dict[str, Any], **about: Any) -> CacheLookup:
    [found] = read(span(1, attributes, at_unix_ns=AT, **about)).lookups
    return found


@pytest.mark.parametrize("cache", SHAPES)
def test_each_cache_is_read_in_its_documented_shape(cache: str) -> None:
    hit, miss = (lookup(each) for each in SHAPES[cache])
    assert (hit.result, miss.result) == (CacheResult.HIT, CacheResult.MISS)
    assert (hit.cache, miss.cache) == (cache, cache)
    assert hit.duration_s == pytest.approx(0.02)


def test_every_row_of_the_table_has_a_shape() -> None:
    assert set(SHAPES) == {each.cache for each in CACHES}


def test_a_hit_is_no_request_and_a_miss_is_one() -> None:
    hit, miss = SHAPES["gen_ai"]
    batch = read(span(1, hit, at_unix_ns=AT), span(2, miss, at_unix_ns=AT))
    assert [row.span_id for row in batch.requests] == [f"{2:016x}"]
    assert [each.result for each in batch.lookups] == ["hit", "miss"]
    assert [each.span_id for each in batch.operations] == [f"{2:016x}"]
    assert (batch.accepted, batch.lookup_spans) == (2, [1, 0])
    assert not batch.skipped


def test_what_a_lookup_contains() -> None:
    found = lookup(SHAPES["litellm"][0])
    assert (found.tenant, found.route, found.model) == ("acme", "/chat/completions", "tiny")
    assert (found.kind, found.similarity, found.lookup_s) == (CacheKind.SEMANTIC, 0.93, None)
    assert found.service == "shop"
    assert lookup(SHAPES["kong"][0]).lookup_s == pytest.approx(0.054)
    exact, semantic = lookup(SHAPES["cloudflare"][0]), lookup(SHAPES["portkey"][0])
    assert (exact.kind, semantic.kind) == (CacheKind.EXACT, CacheKind.SEMANTIC)
    own = lookup({"gen_ai.cache.hit": True}, duration_s=0.003)
    assert own.lookup_s == pytest.approx(0.003)


def test_an_addresss_query_is_not_stored() -> None:
    """The query may contain a key."""
    assert lookup(SHAPES["portkey"][0]).route == "/v1/chat/completions"


def test_a_similarity_alone_is_a_result_only_where_the_cache_documents_it() -> None:
    """LiteLLM reports a similarity for hits and misses, and 0 if the cache has no entry."""
    name = f"{HEADER}x-litellm-semantic-similarity"
    assert lookup({**HTTP, name: ["0.91"]}).result is CacheResult.UNKNOWN
    assert lookup({**HTTP, name: ["0.0"]}).result is CacheResult.MISS
    assert lookup(SHAPES["semantic-router"][1]).result is CacheResult.MISS


def test_a_lookup_of_embeddings_is_of_that_kind() -> None:
    found = lookup({**CALL, "gen_ai.operation.name": "embeddings", "gen_ai.cache.hit": True})
    assert found.kind is CacheKind.EMBEDDING


def test_a_web_servers_cache_is_no_cache_of_answers() -> None:
    """Web servers such as nginx send X-Cache-Status, too."""
    page = {"url.full": "https://shop.example/logo.png", f"{HEADER}x-cache-status": ["HIT"]}
    batch = read(span(1, page, at_unix_ns=AT))
    assert not batch.lookups
    assert batch.skipped == {Skip.NOT_A_REQUEST: 1}


def test_a_hit_of_any_gateway_on_the_way_answers() -> None:
    both = {**HTTP, f"{HEADER}cf-aig-cache-status": ["MISS"], f"{HEADER}helicone-cache": ["HIT"]}
    assert (lookup(both).result, lookup(both).cache) == (CacheResult.HIT, "helicone")
    twice = {**HTTP, f"{HEADER}x-portkey-cache-status": ["MISS, HIT"]}
    assert lookup(twice).result is CacheResult.HIT


def test_the_servers_own_span_is_never_a_hit() -> None:
    """If the server reports a request, an engine has computed it, so it is no hit."""
    own = message(span(1, {**CALL, "gen_ai.cache.hit": True, "gen_ai.latency.e2e": 0.02,
                           "gen_ai.latency.time_in_queue": 0.0}, at_unix_ns=AT))  # fmt: skip
    own.resource_spans[0].scope_spans[0].scope.name = "vllm.llm_engine"
    own.resource_spans[0].scope_spans[0].spans[0].name = "llm_request"
    own.resource_spans[0].scope_spans[0].spans[0].kind = Span.SPAN_KIND_SERVER
    batch = normalise_spans(own.SerializeToString(), NOW_UNIX_NS)
    assert len(batch.requests) == 1
    assert not batch.lookups


HOSTILE = [
    "", "x" * 100_000, "<script>alert(1)</script>", "nan", "Infinity", "1e999", "-1", "\x00", "１",
    float("nan"), float("inf"), -0.5, 1.5, 2**63 - 1, -1, [], ["", "x"], [1, 2.0], [["HIT"]],
    AnyValue(), AnyValue(bytes_value=b"\xff"),
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("name", ["x-portkey-cache-status", "x-ai-cache-similarity"])
def test_a_hostile_header_costs_no_request_and_makes_no_hit(name: str, value: Any) -> None:
    batch = read(span(1, {**CALL, f"{HEADER}{name}": value}, at_unix_ns=AT))
    assert len(batch.requests) == 1
    assert not batch.refused
    assert all(each.result is not CacheResult.HIT for each in batch.lookups)
    assert all(0 <= (each.similarity or 0) <= 1 for each in batch.lookups)
    assert batch.dropped_values[DroppedValue.CACHE_VALUE] == 1


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize(
    "name", ["ai.proxy.cache.fetch_latency", "tailspan.tenant", "http.route", "url.full"]
)
def test_other_hostile_values_are_left_out(name: str, value: Any) -> None:
    attributes = {**CALL, "ai.proxy.cache.cache_status": "Hit", name: value}
    [found] = read(span(1, attributes, at_unix_ns=AT)).lookups
    assert found.result is CacheResult.HIT
    assert found.lookup_s is None or 0 <= found.lookup_s < 1e6
    assert all(len(each or "") <= 256 for each in (found.tenant, found.route, found.model))
    assert "\x00" not in (found.tenant or "") + (found.route or "")


def test_a_lookup_with_an_impossible_time_is_refused() -> None:
    late = span(1, SHAPES["portkey"][0], at_unix_ns=NOW_UNIX_NS + 10 * 86_400 * 10**9)
    backwards = span(2, SHAPES["portkey"][0], at_unix_ns=AT)
    backwards.end_time_unix_nano = AT - 1
    batch = read(late, backwards)
    assert not batch.lookups
    assert batch.refused == {Refusal.IN_THE_FUTURE: 1, Refusal.ENDS_BEFORE_START: 1}


def test_spans_without_a_cache_are_read_as_before() -> None:
    batch = read(*of_every_cache(AT), span(99, CALL, at_unix_ns=AT), span(98, HTTP, at_unix_ns=AT))
    assert len(batch.lookups) == 2 * len(SHAPES)
    assert batch.skipped == {Skip.NOT_A_REQUEST: 1}
    assert f"{99:016x}" in {row.span_id for row in batch.requests}


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none() | st.binary())
def test_reading_a_value_never_fails(value: Any) -> None:
    status_of(value)
    number_of(value)
    similarity = similarity_of(value)
    assert similarity is None or 0 <= similarity <= 1
