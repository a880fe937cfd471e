"""Compute hit rates, answer times and estimated savings of caches in front of the model.

A hit does not reach the model. So no percentile, objective or bill includes it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from sqlalchemy import Engine

from analysis.cache_reports import one_of_each
from cost.bill import bill
from cost.groups import BillGroup, groups_of
from cost.prices import PriceList
from store.billing.billing_data import read_billing_data
from store.cache_lookups import CacheLookupReport, lookup_count, models_of_calls, newest_lookups
from telemetry.cache_lookups import CacheResult
from telemetry.labels import OTHER
from telemetry.proportions import wilson
from telemetry.quantiles import quantile
from telemetry.requests import Outcome, PricedBy
from telemetry.store_errors import NotAllowed
from telemetry.window import Window

LABELS: Final = ("tenant", "route", "model", "cache", "kind", "region", "service")
DEFAULT_BY: Final = ("tenant", "route")
MAX_READ: Final = 100_000
"""Maximum number of reports to read, the newest first. Reading them takes 1.5 s of CPU time."""
MAX_GROUPS: Final = 200
"""Maximum number of groups. Rollups have the same limit for models and routes."""
BINS: Final = 100
"""Number of bins of equal width for the similarities from 0 to 1."""
ESTIMATE: Final = (
    "an estimate: each hit is assumed to save as much as a mean answered request of its tenant and"
    " model in the range, or of its model if the tenant has none; the cost of lookups and"
    " embeddings is not subtracted"
)
_BY: Final = ("tenant", "model", "outcome")
_ANSWERED: Final = tuple(each.value for each in Outcome if each.answered)


@dataclass(frozen=True, slots=True)
class CachesQuestion:
    """The lookups to count, the labels to group them by, and the prices of the engines."""

    window: Window
    prices: PriceList
    by: Sequence[str] = DEFAULT_BY
    where: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeanRequest:
    """The means of the requests that a model answered. Unknown values are None."""

    requests: int
    usd: float | None
    engine_s: float | None


@dataclass(frozen=True, slots=True)
class CacheTimes:
    """Median and 95th percentile of durations, in seconds. They are None if no duration is
    known."""

    p50_s: float | None
    p95_s: float | None
    number: int


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """The lookups with the same labels.

    Attributes:
        rate: hits / (hits + misses) with its 95 % interval. It is None if there are neither hits
            nor misses.
        answer_on_hit: duration of the whole answer of a hit, as the client or gateway measured it.
        saved_usd: the estimated US dollars that the `priced_hits` saved. It is None if there are no
            `priced_hits`.
        saved_engine_s: the estimated engine time that the `timed_hits` saved.
    """

    labels: tuple[str | None, ...]
    results: Mapping[str, int]
    rate: tuple[float, float, float] | None
    answer_on_hit: CacheTimes
    lookup_on_hit: CacheTimes
    lookup_on_miss: CacheTimes
    saved_usd: float | None
    priced_hits: int
    saved_engine_s: float | None
    timed_hits: int

    @property
    def hits(self) -> int:
        """Number of hits."""
        return self.results.get(CacheResult.HIT, 0)

    @property
    def misses(self) -> int:
        """Number of misses."""
        return self.results.get(CacheResult.MISS, 0)


@dataclass(frozen=True, slots=True)
class Bin:
    """The lookups whose similarity is in one bin; the last bin includes 1."""

    from_similarity: float
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class CachesAnswer:
    """The lookups in caches in a window, and what their hits saved.

    Attributes:
        window: the range that was read. It is shorter than the given range if there are too many
            reports.
        reports: the number of reports in the given range. Several reports may describe the same
            lookup.
        groups: the groups of lookups, the largest first. If there are more than `MAX_GROUPS`, the
            group `_other` contains the smaller groups.
        similarity: the bins that contain lookups of the cache `similarity_of`.
        similarity_of: the cache that reported the most similarities. Each cache has its own
            threshold, so only one cache is shown.
        other_similarities: the number of similarities of other caches.
        lowest_hit: the smallest similarity of a hit. Hits near it have the highest risk of a wrong
            answer.
    """

    window: Window
    reports: int
    read: int
    total: CacheGroup | None
    groups: Sequence[CacheGroup]
    similarity: Sequence[Bin]
    lowest_hit: float | None
    similarity_of: str | None = None
    other_similarities: int = 0


def answer_caches(engine: Engine, question: CachesQuestion) -> CachesAnswer:
    """Count the lookups of a window, and estimate what the hits saved."""
    window = question.window
    reports = lookup_count(engine, window)
    rows = newest_lookups(engine, window, MAX_READ) if reports else []
    if rows and len(rows) < reports:
        window = Window(rows[-1].at_unix_ns, window.to_unix_ns)
    inside_calls = any(each.model is None and each.parent_span_id is not None for each in rows)
    models = models_of_calls(engine, window) if inside_calls else {}
    found = [each for each in one_of_each(rows, models) if _matches(each, question.where)]
    hit = any(each.result == CacheResult.HIT for each in found)
    means = _means(engine, window, question.prices) if hit else {}
    by_labels: dict[tuple[str | None, ...], list[CacheLookupReport]] = defaultdict(list)
    for each in found:
        by_labels[tuple(getattr(each, name) for name in question.by)].append(each)
    groups = sorted(by_labels.items(), key=lambda item: (-len(item[1]), [str(x) for x in item[0]]))
    if len(groups) > MAX_GROUPS:
        rest = [each for _, several in groups[MAX_GROUPS - 1 :] for each in several]
        groups = [*groups[: MAX_GROUPS - 1], ((OTHER,) * len(question.by), rest)]
    caches = Counter(each.cache for each in found if each.similarity is not None)
    most = max(caches, key=caches.__getitem__, default=None)
    bins, lowest = _similarity([each for each in found if each.cache == most])
    return CachesAnswer(
        window,
        reports,
        len(rows),
        _group((), found, means) if found else None,
        [_group(labels, several, means) for labels, several in groups],
        bins,
        lowest,
        most,
        sum(number for name, number in caches.items() if name != most),
    )


def _matches(lookup: CacheLookupReport, where: Mapping[str, str | None]) -> bool:
    return all(getattr(lookup, name) == value for name, value in where.items())


_Key = tuple[str | None, str]
"""A tenant (`EVERY` for all tenants) and a model."""
EVERY: Final = "\x00every tenant"
"""The key that stands for all tenants. The collector replaces null characters, so no tenant has
this name."""


def _means(engine: Engine, window: Window, prices: PriceList) -> dict[_Key, MeanRequest]:
    """The mean values of the answered requests.

    The keys are the pairs of tenant and model, and the models over all tenants. The result is empty
    if the reader may not see costs."""
    try:
        costs = bill(read_billing_data(engine, window, _BY), prices).costs
    except NotAllowed:
        return {}
    outcomes = [costs.cells.have({"outcome": each}) for each in _ANSWERED]
    answered = costs.at(np.any(outcomes, axis=0))
    found: dict[_Key, MeanRequest] = {}
    for onto, key in ((("tenant", "model"), None), (("model",), EVERY)):
        for each in groups_of(answered, onto):
            tenant, model = (key, each.labels[0]) if key else each.labels
            if model is not None:
                found[tenant, model] = _mean(each)
    return found


def _mean(group: BillGroup) -> MeanRequest:
    by_ledger = group.priced_by == {PricedBy.LEDGER}
    return MeanRequest(
        group.requests,
        group.usd_per_request,
        group.engine_s / group.priced if by_ledger and group.priced else None,
    )


def _group(
    labels: tuple[str | None, ...],
    lookups: Sequence[CacheLookupReport],
    means: Mapping[_Key, MeanRequest],
) -> CacheGroup:
    results = Counter(each.result for each in lookups)
    hits = [each for each in lookups if each.result == CacheResult.HIT]
    misses = [each for each in lookups if each.result == CacheResult.MISS]
    interval = wilson(len(hits), len(hits) + len(misses))
    instead = [_replaced_request(each, means) for each in hits]
    usd = [each.usd for each in instead if each is not None and each.usd is not None]
    engine_s = [each.engine_s for each in instead if each is not None and each.engine_s is not None]
    return CacheGroup(
        labels,
        results,
        None if interval is None else (len(hits) / (len(hits) + len(misses)), *interval),
        _times(hits, lambda each: each.duration_s),
        _times(hits, lambda each: each.lookup_s),
        _times(misses, lambda each: each.lookup_s),
        sum(usd) if usd else None,
        len(usd),
        sum(engine_s) if engine_s else None,
        len(engine_s),
    )


def _replaced_request(
    hit: CacheLookupReport, means: Mapping[_Key, MeanRequest]
) -> MeanRequest | None:
    """Estimate the request that a hit saved.

    The estimate is the mean of the tenant's requests to the model. If the tenant has no requests to
    the model, the requests of all tenants are used.
    """
    if hit.model is None:
        return None
    return means.get((hit.tenant, hit.model)) or means.get((EVERY, hit.model))


def _times(
    lookups: Iterable[CacheLookupReport], of: Callable[[CacheLookupReport], float | None]
) -> CacheTimes:
    values = np.array([value for each in lookups if (value := of(each)) is not None], np.float64)
    return CacheTimes(quantile(values, 0.5), quantile(values, 0.95), values.size)


def _similarity(lookups: Sequence[CacheLookupReport]) -> tuple[list[Bin], float | None]:
    numbers: dict[str, Counter[int]] = {
        CacheResult.HIT: Counter(),
        CacheResult.MISS: Counter(),
    }
    for each in lookups:
        if each.similarity is not None and each.result in numbers:
            # As a floating-point number, 0.29 · 100 is 28.999….
            numbers[each.result][min(int(each.similarity * BINS + 1e-9), BINS - 1)] += 1
    hits, misses = numbers[CacheResult.HIT], numbers[CacheResult.MISS]
    lowest = min(
        (
            each.similarity
            for each in lookups
            if each.result == CacheResult.HIT and each.similarity is not None
        ),
        default=None,
    )
    return [Bin(at / BINS, hits[at], misses[at]) for at in sorted({*hits, *misses})], lowest
