from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from store.cache_lookups import lookup_count, models_of_calls, newest_lookups
from store.columns.request_columns import request_columns
from store.queries import request_count, request_table
from store.rollups.bucket_builder import build_marked
from store.rollups.queries import rollups
from telemetry.cache_lookups import CacheKind, CacheLookup, CacheResult
from telemetry.requests import Basis, RequestTimeline, Source
from telemetry.window import Window
from tests.store.conftest import put

Row = Callable[..., RequestTimeline]
START_NS = 1_763_634_000_000_000_000
WINDOW = Window(START_NS - 10**12, START_NS + 10**12)
CLIENT: dict[str, Any] = {
    "source": Source.CLIENT,
    "basis": Basis.CLIENT,
    "request_id": None,
    "model": "tiny",
}


def inside(call: RequestTimeline, **about: Any) -> CacheLookup:
    """A cache hit within a client's call."""
    return CacheLookup(
        **{
            "trace_id": call.trace_id,
            "span_id": "f" * 16,
            "parent_span_id": call.span_id,
            "at_unix_ns": call.received_unix_ns,
            "result": CacheResult.HIT,
            "cache": "portkey",
            "duration_s": 0.01,
            **about,
        }
    )


@pytest.fixture
def calls(engine: Engine, request_row: Row) -> list[RequestTimeline]:
    """A server's requests, and a client's five calls; caches answered the first two."""
    found = [request_row(number, trace_id=f"{number + 1:032x}", **CLIENT) for number in range(5)]
    server = [request_row(10 + number, request_id=f"s{number}") for number in range(3)]
    hits = [
        inside(found[0]),
        inside(found[1], kind=CacheKind.SEMANTIC),
        inside(found[2], kind=CacheKind.EMBEDDING),
        inside(found[3], result=CacheResult.MISS),
        inside(found[4], parent_span_id=None),
        inside(server[0]),
    ]
    put(engine, *found, *server, *hits)
    put(engine, *hits)  # sent again
    return found


def test_calls_that_a_cache_answered_are_no_requests(
    engine: Engine, calls: list[RequestTimeline]
) -> None:
    """Rows, columns and rollups omit these calls, but keep a server's rows."""
    found = request_table(engine, WINDOW, columns=["span_id", "source"]).to_pylist()
    client = {each["span_id"] for each in found if each["source"] == "client"}
    assert client == {each.span_id for each in calls[2:]}
    assert len(found) == request_count(engine, WINDOW) == 6
    assert request_columns(engine, WINDOW, ["span_id"]).num_rows == 6
    build_marked(engine, START_NS // 10**9 + 7_200)
    rolled = rollups(engine, WINDOW, by=())
    assert rolled is not None
    assert rolled.sums(()).requests.sum() == 6


def test_the_newest_reports_are_read(engine: Engine, calls: list[RequestTimeline]) -> None:
    assert lookup_count(engine, WINDOW) == 6
    found = newest_lookups(engine, WINDOW, 4)
    assert len(found) == 4
    at = [each.at_unix_ns for each in found]
    assert at == sorted(at, reverse=True)
    assert lookup_count(engine, Window(START_NS - 10, START_NS - 5)) == 0


def test_the_model_of_a_lookup_is_that_of_its_call(
    engine: Engine, calls: list[RequestTimeline]
) -> None:
    models = models_of_calls(engine, WINDOW)
    assert set(models) == {(each.trace_id, each.span_id) for each in calls[:4]}
    assert set(models.values()) == {"tiny"}
