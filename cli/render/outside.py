"""The answer about probes as text."""

from collections.abc import Iterator, Mapping

from sqlalchemy import Engine

from analysis.outside.answer import NEVER_MATCHED, PHASES, EndpointResults, Latency, OutsideAnswer
from analysis.outside.outside import newest_probe
from cli.render import text
from telemetry.printable import printable
from telemetry.time_text import length, moment
from telemetry.window import Window

NAMES = {"not_split": "not split"}
LONGEST_REASON = 200
_NS = 10**9


def lines(answer: OutsideAnswer) -> Iterator[str]:
    """Yield the lines of the answer."""
    endpoints = answer.endpoints
    yield f"Probes due {text.span(answer.window)}"
    if answer.scale > 1:
        which = "probe" if answer.unanswered_scale > 1 else "answered probe"
        yield (
            f"latencies from a sample of {answer.read:,} probes; each {which} of the sample"
            f" stands for {answer.scale:.1f} probes"
        )
    if answer.left_out:
        yield f"{answer.left_out:,} more rows, with fewer failures: select them with --where"
    yield ""
    names = [(text.label(p.endpoint), text.label(p.model), text.label(p.region)) for p in endpoints]
    head = ["endpoint", "model", "region"]
    rows = [[*name, *_summary(place)] for name, place in zip(names, endpoints, strict=True)]
    titles = ["hosting", "sent", "answered", "success", "first content P50", "P95", "wait P50"]
    titles += ["P95", "cost", "certificate"]
    yield from text.table([*head, *titles], rows, left=3, keep=7)
    yield ""
    rows = [[*name, *_phases(place)] for name, place in zip(names, endpoints, strict=True)]
    titles = [*(NAMES.get(each, each) for each in PHASES), "mean wait"]
    yield from text.table([*head, *titles], rows, left=3, keep=3)
    rows = [[*name, *_pairs(place)] for name, place in zip(names, endpoints, strict=True)]
    titles = ["network P50", "P99", "paired", "pairs", "median difference"]
    titles += ["95% interval", "effect"]
    if any(cell != text.UNKNOWN for row in rows for cell in row[3:]):
        yield ""
        yield from text.table([*head, *titles], rows, left=3, keep=3)
    troubles = [
        line
        for name, place in zip(names, endpoints, strict=True)
        for line in _troubles(" ".join(name), place)
    ]
    yield from ["", *troubles] if troubles else []


def _summary(place: EndpointResults) -> list[str]:
    ratio, ends = place.success_ratio, place.certificate_ends_unix_s
    left = text.UNKNOWN if ends is None else _days((ends - place.newest_unix_ns / _NS) / 86_400)
    return [
        place.hosting,
        text.count(place.sent),
        text.count(place.answered),
        text.percent(ratio, 0),
        *_points(place.first_content),
        *_points(place.wait),
        text.usd(place.cost_usd),
        left,
    ]


def _days(days: float) -> str:
    return "ended" if days <= 0 else f"{days:,.0f} d"


def _points(latency: Latency | None) -> list[str]:
    if latency is None:
        return [text.UNKNOWN, text.UNKNOWN]
    return [text.seconds(latency.p50_s), text.seconds(latency.p95_s)]


def _phases(place: EndpointResults) -> list[str]:
    if place.phases_s is None:
        return [text.UNKNOWN] * (len(PHASES) + 1)
    known = [place.phases_s[each] for each in PHASES]
    cells = [text.seconds(each) if each else text.UNKNOWN for each in known]
    return [*cells, text.seconds(place.wait_mean_s)]


def _pairs(place: EndpointResults) -> list[str]:
    network, cache = place.network, place.cache
    cells = [text.UNKNOWN] * 3
    if network is not None:
        cells = [text.seconds(network.p50_s), text.seconds(network.p99_s)]
        cells.append(text.count(network.probes))
    if cache is None:
        return [*cells, *[text.UNKNOWN] * 4]
    low, high = map(text.seconds, (cache.difference_low_s, cache.difference_high_s))
    interval = text.UNKNOWN if cache.effect is None else f"{low} to {high}"
    cells += [text.count(cache.pairs), text.seconds(cache.difference_s), interval]
    return [*cells, cache.effect or text.UNKNOWN]


def _troubles(name: str, place: EndpointResults) -> Iterator[str]:
    for each in place.failures:
        reason = printable(f"{each.error_type}: {each.sentence}", LONGEST_REASON)
        yield f"{name}: {each.probes:,} failed, last {moment(each.newest_unix_ns)}: {reason}"
    if place.cached:
        yield f"{name}: answered by a gateway's cache: {place.cached:,}, not in the latencies"
    for outcome, number in sorted(place.not_sent.items()):
        yield f"{name}: {number:,} {outcome}, which do not count"


def nothing(engine: Engine, window: Window, equals: Mapping[str, str | None]) -> str:
    """Why there is no probe, and what to try."""
    newest = newest_probe(engine, equals)
    if newest is None and equals:
        return NEVER_MATCHED
    found = f"No probes due {text.span(window)}"
    if equals:
        named = ", ".join(f"{key}={text.label(value or '')}" for key, value in equals.items())
        found += f" with {named}"
    if newest is None:
        return f"{found}, and none at any other time. Start a prober: tailspan probe probes.yaml"
    ago = length(max(0, window.to_unix_ns - newest))
    return f"{found}. The latest was due {moment(newest)} UTC ({ago} before the end): use --from."
