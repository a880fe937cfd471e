"""A lookup in a cache of answers or embeddings in front of the model.

The engine's prefix cache is not such a cache. A hit has no row in the table of requests.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from telemetry.fields import CACHE_SPAN, CLOCK_AHEAD, column


class CacheResult(StrEnum):
    """The result of a lookup."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"
    """The cache was not queried, the caller requested a new answer, or the lookup failed."""
    UNKNOWN = "unknown"
    """The status is not documented, or only a similarity was reported."""


class CacheKind(StrEnum):
    """What a cache compares or stores."""

    EXACT = "exact"
    SEMANTIC = "semantic"
    """Answers to similar requests."""
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """One lookup."""

    trace_id: Annotated[str, column("text", "The span's trace id, in hex.", "the span")]
    span_id: Annotated[str, column("text", "The span's id, in hex.", "the span")]
    at_unix_ns: Annotated[int, column("ns", "Start of the span.", "the span's start")]
    result: Annotated[
        CacheResult,
        column(
            "text",
            "`hit`, `miss`, `bypass` (the cache was not asked) or `unknown` (only a similarity was"
            " reported).",
            CACHE_SPAN,
        ),
    ]
    cache: Annotated[
        str, column("text", "The product whose names the span has, such as `portkey`.", CACHE_SPAN)
    ]
    duration_s: Annotated[
        float,
        column(
            "s",
            "Duration of the span. On a hit, this is the time of the whole answer. On a miss, it"
            " may include the call to the model.",
            "the span's start and end",
        ),
    ]
    parent_span_id: Annotated[
        str | None, column("text", "The id of the span's parent, in hex.", "the span")
    ] = None
    service: Annotated[
        str | None,
        column("text", "The sender.", "resource `service.instance.id` or `service.name`"),
    ] = None
    region: Annotated[str | None, column("text", "The region.", "resource `cloud.region`")] = None
    kind: Annotated[
        CacheKind | None,
        column(
            "text",
            "`exact`, `semantic` or `embedding`. Absent if the span does not show the kind.",
            CACHE_SPAN,
        ),
    ] = None
    lookup_s: Annotated[
        float | None,
        column(
            "s",
            "Duration of the lookup alone, with the embedding of the prompt. Absent if the cache"
            " does not report it.",
            CACHE_SPAN,
        ),
    ] = None
    similarity: Annotated[
        float | None,
        column("1", "Similarity of the nearest entry, from 0 to 1.", CACHE_SPAN),
    ] = None
    tenant: Annotated[str | None, column("text", "The tenant.", CACHE_SPAN)] = None
    route: Annotated[str | None, column("text", "The route or path.", CACHE_SPAN)] = None
    model: Annotated[str | None, column("text", "The requested model.", CACHE_SPAN)] = None
    clock_ahead_s: Annotated[float | None, CLOCK_AHEAD] = None

    @property
    def end_unix_ns(self) -> int:
        """The end of the span, in unix nanoseconds."""
        return self.at_unix_ns + int(self.duration_s * 1e9)
