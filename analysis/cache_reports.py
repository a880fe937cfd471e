"""Select one report of each lookup in a cache.

Several spans may report one lookup: the span of the model's call, the HTTP span inside it with the
response's header, and the gateway's own spans. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.cache_lookups import Call
from telemetry.cache_lookups import CacheKind, CacheResult

KNOWN = (CacheResult.HIT.value, CacheResult.MISS.value)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup that counts."""

    result: str
    cache: str
    kind: str | None
    service: str | None
    region: str | None
    tenant: str | None
    route: str | None
    model: str | None
    duration_s: float
    lookup_s: float | None
    similarity: float | None


def one_of_each(
    rows: Sequence[Mapping[str, Any]], models: Mapping[Call, str] | None = None
) -> list[Lookup]:
    """Return the lookups, each once.

    In one trace, the service that reported first counts, which is the application if it reports
    lookups at all. Of a span and its parent, the parent counts. Reports with a known result count
    before others. Lookups of embeddings and of answers are separate.

    Args:
        rows: reports with `store.cache_lookups.COLUMNS`.
        models: the models of calls, for reports without a model.
    """
    known = [row for row in rows if row["result"] in KNOWN]
    traces = {_trace(row) for row in known}
    others = [row for row in rows if row["result"] not in KNOWN and _trace(row) not in traces]
    return [_lookup(row, models or {}) for row in (*_outermost(known), *_outermost(others))]


def _trace(row: Mapping[str, Any]) -> tuple[str, bool]:
    return row["trace_id"], row["kind"] == CacheKind.EMBEDDING.value


def _outermost(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    rows = list(rows)
    first: dict[tuple[str, bool], Mapping[str, Any]] = {}
    for row in rows:
        earliest = first.setdefault(_trace(row), row)
        if row["at_unix_ns"] < earliest["at_unix_ns"]:
            first[_trace(row)] = row
    reported = {(*_trace(row), row["span_id"]) for row in rows}
    return [
        row
        for row in rows
        if row["service"] == first[_trace(row)]["service"]
        and (*_trace(row), row["parent_span_id"]) not in reported
    ]


def _lookup(row: Mapping[str, Any], models: Mapping[Call, str]) -> Lookup:
    fields = {name: row[name] for name in Lookup.__slots__}
    if fields["model"] is None and row["parent_span_id"] is not None:
        fields["model"] = models.get((row["trace_id"], row["parent_span_id"]))
    return Lookup(**fields)
