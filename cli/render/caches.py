"""The result of `tailspan caches` as text."""

from collections.abc import Iterator, Sequence

from analysis.caches import ESTIMATE, CacheGroup, CachesAnswer
from cli.render import text
from telemetry.cache_lookups import CacheResult
from telemetry.window import Window

MAX_GROUPS = 40
MAX_BINS = 20


def lines(found: CachesAnswer, by: Sequence[str]) -> Iterator[str]:
    """Yield the lines for at least one lookup."""
    total = found.total
    assert total is not None
    yield f"Lookups in caches before the model, {text.span(found.window)}"
    if found.read < found.reports:
        yield f"the newest {found.read:,} of {found.reports:,} reports in the range were read"
    yield f"{_rate(total)}; a hit is not a request, so no percentile, objective or bill includes it"
    yield from _not_counted(total)
    yield ""
    header = [
        *by,
        *("hits", "misses", "hit rate", "95 % interval", "hit p50", "hit p95"),
        *("hit lookup p50", "miss lookup p50", "saved", "engine time"),
    ]
    rows = [
        [
            *(text.label(label) for label in group.labels),
            text.count(group.hits),
            text.count(group.misses),
            *_percents(group),
            text.seconds(group.answer_on_hit.p50_s),
            text.seconds(group.answer_on_hit.p95_s),
            text.seconds(group.lookup_on_hit.p50_s),
            text.seconds(group.lookup_on_miss.p50_s),
            text.usd(group.saved_usd),
            text.seconds(group.saved_engine_s),
        ]
        for group in found.groups[:MAX_GROUPS]
    ]
    yield from text.table(header, rows, left=len(by), keep=len(by) + 2)
    if len(found.groups) > MAX_GROUPS:
        yield f"… and {len(found.groups) - MAX_GROUPS:,} more groups: --format json"
    yield ""
    yield _saved(total)
    yield from _similarity(found)


def nothing(window: Window, reports: int) -> str:
    """Why the range has no lookups."""
    if reports:
        return f"No lookups {text.span(window)} have these labels. Remove a --where."
    return (
        f"No lookups in caches were reported {text.span(window)}. docs/caches.md describes which"
        " spans and headers report them."
    )


def _rate(total: CacheGroup) -> str:
    number = total.hits + total.misses
    if total.rate is None:
        return "no hit or miss"
    return f"{total.hits:,} hits of {number:,} lookups, {' '.join(_percents(total))}"


def _percents(group: CacheGroup) -> tuple[str, str]:
    if group.rate is None:
        return text.UNKNOWN, text.UNKNOWN
    ratio, low, high = map(text.percent, group.rate)
    return ratio, f"[{low} to {high}]"


def _not_counted(total: CacheGroup) -> Iterator[str]:
    if bypassed := total.results.get(CacheResult.BYPASS):
        yield f"not counted: {bypassed:,} requests for which the cache was bypassed"
    if unknown := total.results.get(CacheResult.UNKNOWN):
        yield f"not counted: {unknown:,} lookups that report neither a hit nor a miss"


def _saved(total: CacheGroup) -> str:
    if total.saved_usd is None and total.saved_engine_s is None:
        return "Saved: unknown, because no answered request to the models of these hits has a cost."
    hits = f"of {total.hits:,} hits"
    parts = []
    if total.saved_usd is not None:
        parts.append(f"{text.usd(total.saved_usd)} for {total.priced_hits:,} {hits}")
    if total.saved_engine_s is not None:
        seconds = text.seconds(total.saved_engine_s)
        parts.append(f"{seconds} of engine time for {total.timed_hits:,} {hits}")
    return f"Saved: {', '.join(parts)}; {ESTIMATE}."


def _similarity(found: CachesAnswer) -> Iterator[str]:
    if not found.similarity:
        return
    yield ""
    rows = [
        [f"{each.from_similarity:.2f}", text.count(each.hits), text.count(each.misses)]
        for each in found.similarity[-MAX_BINS:]
    ]
    yield f"Similarities in the cache {text.label(found.similarity_of)}:"
    yield from text.table(["similarity from", "hits", "misses"], rows, left=1, keep=3)
    if len(found.similarity) > MAX_BINS:
        below = found.similarity[:-MAX_BINS]
        misses, hits = sum(each.misses for each in below), sum(each.hits for each in below)
        yield f"below: {hits:,} hits, {misses:,} misses"
    if found.lowest_hit is not None:
        yield (
            f"The lowest similarity of a hit is {found.lowest_hit:.3f}. Hits near this value are"
            " the most likely to contain the answer to another question."
        )
    if found.other_similarities:
        yield (
            f"Lookups of other caches with a similarity: {found.other_similarities:,}. To see them,"
            " add --where cache=NAME."
        )
