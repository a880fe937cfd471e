"""The names under which gateways and applications report a lookup in a cache of answers.

No convention exists (semantic-conventions#2128 is open). To support a product, add a row to
`CACHES` and to docs/caches.md.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from telemetry.cache_lookups import CacheKind, CacheResult

HEADER_PREFIX: Final = "http.response.header."
"""Prefix of attributes with captured headers, which are arrays. Source: OpenTelemetry semantic
conventions, "HTTP attributes"."""

MAX_CHARS: Final = 64
"""Maximum length of a status or a number as text. Documented values have up to 17 characters."""
ROUNDING: Final = 1e-6
"""A similarity may exceed 1 by this much, because of 32-bit floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNames:
    """The names that one product uses.

    Attributes:
        attributes: span attributes with the result.
        headers: response headers with the result, in lower case.
        milliseconds: span attributes in milliseconds. Their sum is the duration of the lookup.
        kind: the kind of the cache. It is None if the status or the similarity determines the kind.
        similarity_alone: the result to store if a span has a similarity but no status.
        models_only: whether to read the headers only in responses of models. Servers without a
            model also send them.
    """

    cache: str
    source: str
    attributes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    similarity_attributes: tuple[str, ...] = ()
    similarity_headers: tuple[str, ...] = ()
    milliseconds: tuple[str, ...] = ()
    kind: CacheKind | None = None
    similarity_alone: CacheResult = CacheResult.UNKNOWN
    models_only: bool = False


CACHES: Final = (
    CacheNames(
        cache="gen_ai",
        source="no convention; several libraries, such as kmemo",
        attributes=("gen_ai.cache.hit",),
        similarity_attributes=("gen_ai.cache.similarity",),
    ),
    CacheNames(
        cache="litellm",
        # A miss reports the similarity of the nearest entry, or 0.
        source="LiteLLM, “Semantic Caching” and `litellm/proxy`",
        attributes=("litellm.cache.hit", "litellm.cache_hit"),
        headers=("x-litellm-cache-hit",),
        similarity_attributes=("litellm.cache.similarity",),
        similarity_headers=("x-litellm-semantic-similarity",),
    ),
    CacheNames(
        cache="portkey",
        source="Portkey, “Response schema”",
        headers=("x-portkey-cache-status",),
    ),
    CacheNames(
        cache="semantic-router",
        # A miss may report the similarity of a rejected entry.
        source="vLLM Semantic Router, “Router headers”",
        headers=("x-vsr-cache-hit",),
        similarity_headers=("x-vsr-cache-similarity",),
        kind=CacheKind.SEMANTIC,
        similarity_alone=CacheResult.MISS,
    ),
    CacheNames(
        cache="cloudflare",
        source="Cloudflare AI Gateway, “Caching”",
        headers=("cf-aig-cache-status",),
        kind=CacheKind.EXACT,
    ),
    CacheNames(
        cache="kong",
        source="Kong, “AI Gateway audit log reference” and “AI Semantic Cache”",
        attributes=("ai.proxy.cache.cache_status",),
        headers=("x-cache-status",),
        milliseconds=("ai.proxy.cache.fetch_latency", "ai.proxy.cache.embeddings_latency"),
        models_only=True,
    ),
    CacheNames(
        cache="apisix",
        source="Apache APISIX, “ai-cache”",
        headers=("x-ai-cache-status",),
        similarity_headers=("x-ai-cache-similarity",),
    ),
    CacheNames(
        cache="truefoundry",
        source="TrueFoundry AI Gateway, “Caching”",
        headers=("x-tfy-cache-status",),
        similarity_headers=("x-tfy-cache-similarity-score",),
    ),
    CacheNames(
        cache="openrouter",
        source="OpenRouter, “Response caching”",
        headers=("x-openrouter-cache-status",),
        kind=CacheKind.EXACT,
    ),
    CacheNames(
        cache="helicone",
        source="Helicone, “LLM caching”",
        headers=("helicone-cache",),
        kind=CacheKind.EXACT,
    ),
)


class CacheStatus(NamedTuple):
    """The meaning of a reported status."""

    result: CacheResult
    kind: CacheKind | None = None


_EXACT, _SEMANTIC = CacheKind.EXACT, CacheKind.SEMANTIC
STATUSES: Final[Mapping[str, CacheStatus]] = {
    # Cloudflare, Helicone, Kong, OpenRouter, Portkey's simple cache, TrueFoundry
    "hit": CacheStatus(CacheResult.HIT),
    "miss": CacheStatus(CacheResult.MISS),
    # gen_ai.cache.hit, LiteLLM
    "true": CacheStatus(CacheResult.HIT),
    "false": CacheStatus(CacheResult.MISS),
    "semantic hit": CacheStatus(CacheResult.HIT, _SEMANTIC),
    "semantic miss": CacheStatus(CacheResult.MISS, _SEMANTIC),
    "disabled": CacheStatus(CacheResult.BYPASS),
    # APISIX: layer 1 compares requests, layer 2 embeddings
    "hit l1": CacheStatus(CacheResult.HIT, _EXACT),
    "hit l2": CacheStatus(CacheResult.HIT, _SEMANTIC),
    "skip stream": CacheStatus(CacheResult.BYPASS),
    # Kong and Portkey: the caller requested a new answer
    "bypass": CacheStatus(CacheResult.BYPASS),
    "refresh": CacheStatus(CacheResult.BYPASS),
    # TrueFoundry: the lookup failed, so the model was called
    "error": CacheStatus(CacheResult.BYPASS),
}
"""The documented statuses, in lower case, with blanks in place of `-` and `_`."""


def status_of(value: object) -> CacheStatus | None:
    """The meaning of a status, or None. Each proxy on the way may add a status to a header. A hit
    is preferred."""
    if isinstance(value, bool):
        return STATUSES[str(value).lower()]
    if not isinstance(value, str):
        return None
    words = [
        each.strip().lower().replace("-", " ").replace("_", " ")
        for each in value[:MAX_CHARS].split(",")
    ]
    found = [STATUSES[each] for each in words if each in STATUSES]
    return next((each for each in found if each.result is CacheResult.HIT), next(iter(found), None))


def similarity_of(value: object) -> float | None:
    """A similarity from 0 to 1, or None."""
    number = number_of(value)
    if number is None or not 0 <= number <= 1 + ROUNDING:
        return None
    return min(number, 1.0)


def number_of(value: object) -> float | None:
    """A finite number from a number or a text, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not (len(value) <= MAX_CHARS and value.isascii()):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class Reported(NamedTuple):
    """The lookup in one product's cache. `result` is None if no value is valid. `invalid` contains
    the names with invalid values."""

    cache: str
    result: CacheResult | None
    kind: CacheKind | None = None
    similarity: float | None = None
    invalid: tuple[str, ...] = ()


Get = Callable[[str, bool], object]
"""Returns the value of a name, or None. The second argument is true for a header."""


def reported_by(names: CacheNames, get: Get) -> Reported | None:
    """The lookup in one product's cache, or None if no name of the product has a value."""
    given = _first_value(get, names.attributes, names.headers)
    near = _first_value(get, names.similarity_attributes, names.similarity_headers)
    if given is None and near is None:
        return None
    status = None if given is None else status_of(given[1])
    similarity = None if near is None else similarity_of(near[1])
    invalid = [given[0]] if given is not None and status is None else []
    invalid += [near[0]] if near is not None and similarity is None else []
    if given is None:
        alone = CacheResult.MISS if similarity == 0 else names.similarity_alone
        result = None if similarity is None else alone
    else:
        result = CacheResult.UNKNOWN if status is None else status.result
    kind = (status.kind if status else None) or names.kind
    if kind is None and similarity is not None:
        kind = CacheKind.SEMANTIC
    return Reported(names.cache, result, kind, similarity, tuple(invalid))


_ORDER: Final = (CacheResult.HIT, CacheResult.MISS, CacheResult.BYPASS, CacheResult.UNKNOWN)


def decisive(reports: Iterable[Reported]) -> Reported | None:
    """The report to store if several gateways report a lookup. A hit is preferred to a miss. A miss
    is preferred to all other valid reports."""
    valid = [each for each in reports if each.result is not None]
    if not valid:
        return None
    found = min(valid, key=lambda each: _ORDER.index(each.result or CacheResult.UNKNOWN))
    if found.similarity is not None:
        return found
    near = next((each for each in valid if each.similarity is not None), found)
    return found._replace(similarity=near.similarity, kind=found.kind or near.kind)


def in_headers(headers: Mapping[str, str]) -> Reported | None:
    """The lookup that the headers of a model's response report, or None. The names of the headers
    must be in lower case."""

    def get(name: str, is_header: bool) -> object:
        return headers.get(name) if is_header else None

    found = (reported_by(names, get) for names in CACHES)
    return decisive(each for each in found if each is not None)


def _first_value(
    get: Get, attributes: tuple[str, ...], headers: tuple[str, ...]
) -> tuple[str, object] | None:
    for name in (*attributes, *headers):
        value = get(name, name in headers)
        if value is not None:
            return name, value
    return None
