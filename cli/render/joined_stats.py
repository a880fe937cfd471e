"""Statistics of joined requests as text. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analysis.joined.words import PHASE_NAMES
from analysis.stats import PERCENTILES
from cli.render import text
from telemetry.joined_request import JOINED_PHASES, JoinedBasis

_TITLES: Final = {
    "ttft_s": "TTFT",
    "first_content_s": "content",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
}
_MEANS: Final = {"ttft_s": "ttft_phases", "e2e_s": "phases"}
"""Maps each latency to the key in `means` for the phases of this latency. The means of these phases
sum to the mean of the latency."""


def stats_lines(groups: Sequence[Mapping[str, Any]], by: Sequence[str]) -> Iterator[str]:
    """Yield the counts, the percentiles, and the means of the phases.

    A latency that is unknown for all requests is omitted.
    """
    requests = sum(group["requests"] for group in groups)
    yield f"{requests:,} in {len(groups):,} {'group' if len(groups) == 1 else 'groups'}"
    if inside := sum(group["measured_at"][JoinedBasis.ENGINES.value] for group in groups):
        yield f"{inside:,} measured at the engines: the time in the router is not known"
    names = [[text.label(group[name]) for name in by] for group in groups]
    numbered = [*zip(names, groups, strict=True)]
    yield ""
    yield from _counts(numbered, by)
    yield ""
    rows = [
        [title, *name, *_points(values(group))]
        for title, values in _latencies()
        if any(values(group)["p50"] is not None for group in groups)
        for name, group in numbered
    ]
    header = ["latency", *by, *PERCENTILES, "p99 interval (95 %)"]
    yield from text.table(header, rows, left=1 + len(by), keep=len(header))
    yield ""
    rows = [
        [f"{_TITLES[whole]}, mean", *name, *_means(group["means"], whole)]
        for whole in _MEANS
        for name, group in numbered
    ]
    header = ["latency", *by, *PHASE_NAMES.values(), "sum"]
    yield from text.table(header, rows, left=1 + len(by))


def _counts(
    numbered: Sequence[tuple[list[str], Mapping[str, Any]]], by: Sequence[str]
) -> Iterator[str]:
    rows = [
        [
            *name,
            text.count(group["requests"]),
            text.count(group["incomplete"]),
            text.count(group["errors"]),
            text.count(group["aborted"]),
            text.rate(group["throughput_rps"]),
            text.rate(group["output_tokens_per_s"]),
        ]
        for name, group in numbered
    ]
    header = [*by, "requests", "incomplete", "errors", "aborted", "req/s", "output tokens/s"]
    yield from text.table(header, rows, left=len(by), keep=len(header))


def _latencies() -> Iterator[tuple[str, Any]]:
    for latency, title in _TITLES.items():
        yield title, lambda group, key=latency: group[key]
    for phase, title in PHASE_NAMES.items():
        yield title, lambda group, key=phase: group["phases"][key]


def _points(found: Mapping[str, float | None]) -> Iterator[str]:
    yield from (text.seconds(found[point]) for point in PERCENTILES)
    yield text.interval(found)


def _means(means: Mapping[str, Any], whole: str) -> Iterator[str]:
    yield from (text.seconds(means[_MEANS[whole]][phase]) for phase in JOINED_PHASES)
    yield text.seconds(means[whole])
