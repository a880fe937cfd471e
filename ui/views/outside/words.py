"""The texts and tables of the Outside page. Pure. External text is escaped."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

from analysis.outside.answer import CacheEffect, EndpointResults, Latency, OutsideAnswer
from ui.kit import wording
from ui.kit.tables import table

UNKNOWN: Final = wording.UNKNOWN
DAY_S: Final = 86_400
MAX_NAMED: Final = 3
_NS: Final = 10**9

START: Final = """\
pip install -c constraints.txt ./instrumentation '.[probe]'   # in Tailspan's source folder
tailspan probe probes.yaml"""


HOSTING: Final = {"self-hosted": "self-hosted", "managed": "managed", "unknown": UNKNOWN}


def example(endpoint: str) -> str:
    """An example of `probes.yaml`. `endpoint` is the collector's address for OTLP over HTTP."""
    return f"""\
region: eu-west
every: 30s
budget: {{usd_per_day: 2, tokens_per_day: 500000}}
endpoint: {endpoint}       # Tailspan's collector
endpoints:
  - {{name: chat, kind: openai-chat, url: https://chat.example.com, model: llama-3-8b,
     max_tokens: 16, prompt_tokens: 500}}"""


def name(place: EndpointResults) -> str:
    """The endpoint and the region as plain text, which the caller must escape."""
    return f"{place.endpoint} from {place.region or 'an unknown region'}"


def sentence(answer: OutsideAnswer) -> str:
    """The finding as HTML."""
    found = answer.endpoints
    sent, good = sum(p.sent for p in found), sum(p.answered for p in found)
    endpoints = wording.counted(len({p.endpoint for p in found}), "endpoint")
    regions = wording.counted(len({p.region for p in found}), "region")
    if not sent:
        return f"<b>No probe was sent</b> to {endpoints} from {regions}."
    about = "about " if answer.scale > 1 else ""
    text = (
        f"<b>{wording.exact_percent(good / sent)}</b> of {about}{wording.counted(sent, 'probe')} to"
        f" {endpoints} from {regions} got a complete answer."
    )
    return text + _worst(found)


def _worst(endpoints: Sequence[EndpointResults]) -> str:
    """The endpoints and regions with the lowest share of answered probes, or an empty text."""
    ratios = [p.success_ratio for p in endpoints if p.success_ratio is not None]
    lowest = min(ratios)
    worst = [p for p in endpoints if p.success_ratio == lowest]
    if lowest == 1 or len(ratios) == 1:
        return ""
    names = ", ".join(wording.for_html(name(p), 80) for p in worst[:MAX_NAMED])
    if len(worst) > MAX_NAMED:
        names += f" and {len(worst) - MAX_NAMED:,} more"
    if len(worst) == 1:
        (p,) = worst
        return f" Worst: {names}, {p.sent - p.answered:,} of {p.sent:,} probes failed."
    if not lowest:
        return f" {len(worst):,} pairs of endpoint and region got no answer: {names}."
    return f" Worst, each with {wording.exact_percent(lowest)} answered: {names}."


def notes(answer: OutsideAnswer) -> list[str]:
    """Notes on missing or estimated values, as HTML."""
    sentences = []
    if answer.scale > 1:
        all_failed = answer.unanswered_scale == 1
        sentences.append(
            f"This range has many probes. Latencies come from {answer.read:,} of them, and each"
            f" {'answered probe' if all_failed else 'probe'} that was read stands for"
            f" {answer.scale:.1f} probes."
            + (" All failures count." if all_failed else " The number of failures is an estimate.")
        )
    if answer.left_out:
        sentences.append(
            f"{answer.left_out:,} more rows, with fewer failures, are not shown. Choose a region or"
            " an endpoint to see them."
        )
    if cached := sum(p.cached for p in answer.endpoints):
        sentences.append(
            f"Answered by a gateway's cache: {cached:,}. The latencies leave them out."
        )
    if against := _best_of_each_hosting(answer.endpoints):
        sentences.append(against)
    return sentences


def _best_of_each_hosting(endpoints: Sequence[EndpointResults]) -> str:
    """For each region, the best self-hosted and the best managed endpoint."""
    sentences = []
    for region in sorted({p.region for p in endpoints}, key=str):
        best = {
            hosting: min(
                (
                    (p.first_content.p50_s, p.endpoint)
                    for p in endpoints
                    if p.region == region and p.hosting == hosting and p.first_content
                ),
                default=None,
            )
            for hosting in ("self-hosted", "managed")
        }
        own, managed = best["self-hosted"], best["managed"]
        if own and managed:
            sentences.append(
                f"{wording.for_html(region or 'unknown region')}: self-hosted"
                f" {wording.for_html(own[1])} {wording.seconds(own[0])}, managed"
                f" {wording.for_html(managed[1])} {wording.seconds(managed[0])}"
            )
    return (
        f"Fastest endpoints by median first content: {'; '.join(sentences)}." if sentences else ""
    )


def endpoints(endpoints: Sequence[EndpointResults], at_unix_ns: int) -> str:
    """A table with a row for each endpoint and region."""
    heads = ["endpoint", "region", "model", "hosting", "probes", "answered", "by a cache"]
    heads += ("first content P50", "P95", "whole wait P50", "P95", "network P50", "latest")
    rows = []
    for p in endpoints:
        network = UNKNOWN if p.network is None else wording.seconds(p.network.p50_s)
        cells = [*_names(p), wording.for_html(p.model or UNKNOWN), HOSTING[p.hosting]]
        cells += [f"{p.sent:,}", wording.exact_percent(p.success_ratio), f"{p.cached:,}"]
        cells += [*_points(p.first_content), *_points(p.wait), network]
        rows.append([*cells, _age_text(p.newest_unix_ns, at_unix_ns)])
    return table(heads, rows, "short")


def failures(endpoints: Sequence[EndpointResults], zone: tzinfo) -> str:
    """A table of the reasons why probes failed or were not sent, or an empty text."""
    rows = [
        [
            *_names(p),
            f"{each.probes:,}",
            wording.clock(each.newest_unix_ns, zone, date=True),
            f"{wording.for_html(each.error_type)}: {wording.for_html(each.sentence, 300)}",
        ]
        for p in endpoints
        for each in p.failures
    ]
    rows += [
        [*_names(p), f"{number:,}", "", f"{wording.for_html(outcome)}: not counted"]
        for p in endpoints
        for outcome, number in sorted(p.not_sent.items())
    ]
    return (
        table(("endpoint", "region", "probes", "last", "reason"), rows, "short probes", text=(4,))
        if rows
        else ""
    )


def network_and_cache(endpoints: Sequence[EndpointResults]) -> str:
    """A table of network times and of the prefix cache's effect. The text is empty if neither is
    known."""
    heads = ["endpoint", "region", "network P50", "P99", "paired probes", "median difference"]
    heads += ("95 % interval", "effect", "cached")
    rows = []
    for p in endpoints:
        if p.network is None and p.cache is None:
            continue
        cells = [*_names(p), *[UNKNOWN] * 7]
        if p.network is not None:
            cells[2:5] = [
                wording.seconds(p.network.p50_s),
                wording.seconds(p.network.p99_s),
                f"{p.network.probes:,}",
            ]
        if p.cache is not None:
            pairs = wording.counted(p.cache.pairs, "pair")
            cells[5:] = [
                f"{wording.signed_seconds(p.cache.difference_s)} of {pairs}",
                _interval(p.cache),
                p.cache.effect or UNKNOWN,
                wording.percent(p.cache.cached_ratio),
            ]
        rows.append(cells)
    return table(heads, rows, "short") if rows else ""


def _interval(cache: CacheEffect) -> str:
    if cache.effect is None:
        return UNKNOWN
    low, high = map(wording.signed_seconds, (cache.difference_low_s, cache.difference_high_s))
    return f"{low} to {high}"


def cost(answer: OutsideAnswer, at_unix_ns: int) -> str:
    """The cost of probing, and when certificates expire."""
    days = (answer.window.to_unix_ns - answer.window.from_unix_ns) / _NS / DAY_S
    heads = ("endpoint", "region", "tokens in", "tokens out", "cost", "per day", "certificate ends")
    rows = []
    for p in answer.endpoints:
        per_day = None if p.cost_usd is None else p.cost_usd / days
        cells = [*_names(p), f"{p.prompt_tokens:,}", f"{p.output_tokens:,}"]
        cells += [wording.usd(p.cost_usd), wording.usd(per_day)]
        rows.append([*cells, _certificate(p.certificate_ends_unix_s, at_unix_ns / _NS)])
    return table(heads, rows, "short")


def _certificate(ends_s: float | None, now_s: float) -> str:
    if ends_s is None:
        return UNKNOWN
    try:
        day = f"{datetime.fromtimestamp(ends_s, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):  # outside the years 1 to 9999
        return UNKNOWN
    left_s = ends_s - now_s
    return f"{day} (ended)" if left_s <= 0 else f"{day} (in {wording.span(left_s)})"


def _age_text(newest_unix_ns: int, at_unix_ns: int) -> str:
    return f"{wording.span(max(0, at_unix_ns - newest_unix_ns) / _NS)} ago"


def _names(place: EndpointResults) -> list[str]:
    return [wording.for_html(place.endpoint), wording.for_html(place.region or UNKNOWN)]


def _points(latency: Latency | None) -> list[str]:
    if latency is None:
        return [UNKNOWN, UNKNOWN]
    return [wording.seconds(latency.p50_s), wording.seconds(latency.p95_s)]
