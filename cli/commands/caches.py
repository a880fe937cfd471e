"""`tailspan caches`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from analysis.caches import (
    DEFAULT_BY,
    ESTIMATE,
    LABELS,
    MAX_READ,
    CacheGroup,
    CachesAnswer,
    CachesQuestion,
    CacheTimes,
    answer_caches,
)
from cli.options.price_files import prices_of
from cli.options.question import dimensions_of, open_selection
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, prices_option, time_options
from cli.render import caches as caches_text
from telemetry.cache_lookups import CacheResult


@click.command(
    epilog="""\b
Examples:
  tailspan caches
  tailspan caches --last 24h --by tenant
  tailspan caches --by cache,kind --format json
  tailspan caches --where tenant=acme --where kind=semantic
"""
)
@time_options
@click.option(
    "--by",
    default=",".join(DEFAULT_BY),
    show_default=True,
    metavar="LABEL,LABEL",
    help=f"Labels to group by: {', '.join(LABELS)}.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Select lookups with this label value. May be repeated. LABEL= selects lookups without"
    " this label.",
)
@prices_option
@format_option("Text, or one JSON object.")
@database_option
@config_option
def caches(
    last: str | None,
    start: str | None,
    end: str | None,
    by: str,
    where: tuple[str, ...],
    prices: Path | None,
    form: str,
    database: str | None,
) -> None:
    """Show the calls that a cache answered instead of the model, and the saved cost.

    These are semantic, embedding and response caches of applications and gateways, not prefix
    caches. Spans report their hits and misses (docs/caches.md). Percentiles, objectives, bills and
    diagnoses do not include hits.

    The hit rate is hits divided by hits and misses, with a 95 % interval (Wilson). The hit time is
    the time until the whole answer was sent. The lookup time is known only if the cache reports it.

    The saving is an estimate at current prices: each hit is assumed to save the mean cost and
    engine time of the answered requests of its tenant and model. If the tenant has none, all
    requests of its model are used. The cost of lookups and embeddings is not subtracted.
    """
    dimensions = dimensions_of(by, LABELS, "lookups")
    in_force = prices_of(prices)
    selection = open_selection(last, start, end, where, database, LABELS)
    question = CachesQuestion(selection.window, in_force, dimensions, selection.equals)
    found = answer_caches(selection.engine, question)
    if form == "json":
        click.echo(json.dumps(as_json(found, dimensions), allow_nan=False))
    elif found.total is None:
        click.echo(caches_text.nothing(selection.window, found.reports), err=True)
    else:
        for line in caches_text.lines(found, dimensions):
            click.echo(line)


def as_json(found: CachesAnswer, by: Sequence[str]) -> dict[str, Any]:
    """The answer as JSON, with null for unknown values."""
    return {
        "from": found.window.from_unix_ns / 1e9,
        "to": found.window.to_unix_ns / 1e9,
        "reports": found.reports,
        "reports_read": found.read,
        "most_read": MAX_READ,
        "by": list(by),
        "total": None if found.total is None else _group(found.total, ()),
        "groups": [_group(each, by) for each in found.groups],
        "similarity": [
            {"from": each.from_similarity, "hits": each.hits, "misses": each.misses}
            for each in found.similarity
        ],
        "similarity_of": found.similarity_of,
        "lowest_hit_similarity": found.lowest_hit,
        "saved_is": ESTIMATE,
    }


def _group(group: CacheGroup, by: Sequence[str]) -> dict[str, Any]:
    ratio, low, high = group.rate or (None, None, None)
    return {
        **dict(zip(by, group.labels, strict=True)),
        "hits": group.hits,
        "misses": group.misses,
        "bypassed": group.results.get(CacheResult.BYPASS, 0),
        "unknown": group.results.get(CacheResult.UNKNOWN, 0),
        "hit_ratio": ratio,
        "hit_ratio_low": low,
        "hit_ratio_high": high,
        "answer_on_hit_s": _times(group.answer_on_hit),
        "lookup_on_hit_s": _times(group.lookup_on_hit),
        "lookup_on_miss_s": _times(group.lookup_on_miss),
        "saved_usd": group.saved_usd,
        "saved_usd_hits": group.priced_hits,
        "saved_engine_s": group.saved_engine_s,
        "saved_engine_s_hits": group.timed_hits,
    }


def _times(times: CacheTimes) -> dict[str, float | int | None]:
    return {"p50": times.p50_s, "p95": times.p95_s, "number": times.number}
