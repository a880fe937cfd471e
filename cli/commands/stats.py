"""`tailspan stats`: counts, rates and percentiles, by any labels."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import click

from analysis.stats import (
    DIMENSIONS,
    MOST_READ,
    PERCENTILES,
    StatsAnswer,
    StatsQuestion,
    answer_stats,
)
from cli.options.question import ask, dimensions_of, nothing_found, question_options, silence
from cli.render import text
from store.rollups.label_sets import OTHER
from telemetry.requests import Source

LESS = {
    Source.NATIVE: "from the engine's native spans, which omit aborted and refused requests",
    Source.CLIENT: "from clients only: their latencies include the network",
}
"""Notes that are printed for requests from other sources than the instrumentation."""

_TITLES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_max_s": "ITL max",
    "e2e_s": "E2E",
    "queue_s": "queue",
}


@click.command(
    epilog="""\b
Examples:
  tailspan stats
  tailspan stats --last 1h --by model,tenant
  tailspan stats --by replica --where outcome=stop --format json
  tailspan stats --last 30d --by model
"""
)
@question_options
@click.option(
    "--by",
    default="",
    metavar="LABEL,LABEL",
    help=(
        "Labels to group by. There is one group per combination of values. Default: one group for"
        " all requests."
    ),
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "exact", "sketch"]),
    default="auto",
    show_default=True,
    help="exact reads the requests. sketch reads rollups, within 1 %. auto is exact for up to"
    f" {MOST_READ:,} requests if they are still stored.",
)
def stats(form: str, by: str, precision: Literal["auto", "exact", "sketch"], **asked: Any) -> None:
    """Count requests and print latency percentiles, in groups.

    The percentiles of a latency include all requests that have this latency, with any outcome. Each
    percentile is the latency of one request (nearest rank). p99_low to p99_high is the 95 %
    confidence interval of the 99th percentile. The interval is null if there are too few requests.
    Rates are averages over the whole window. The JSON has one object per line, with the labels
    first and null for unknown values.

    If there are many requests, or if they were deleted, the statistics come from rollups.
    Percentiles are then within 1 %, and the window is extended to whole minutes, or to whole hours
    if the rollups per minute were deleted. The key `precision` is `sketch` for rollups, and
    otherwise `exact`.
    """
    dimensions = dimensions_of(by, DIMENSIONS, "requests")
    question = ask(**asked)
    try:
        found = answer_stats(
            question.engine,
            StatsQuestion(question.window, question.equals, dimensions, precision),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not found.groups:
        click.echo(nothing_found(question), err=True)
        return
    if form == "json":
        for group in found.groups:
            click.echo(json.dumps({**group, "precision": found.precision}, allow_nan=False))
    else:
        silent = silence(question.engine, question.window.to_unix_ns)
        _print_text(found, dimensions, silent)


def _print_text(found: StatsAnswer, dimensions: Sequence[str], silent: str | None) -> None:
    groups = found.groups
    requests = sum(group["requests"] for group in groups)
    if silent:
        click.echo(silent)
    click.echo(f"Requests received {text.span(found.window)}")
    click.echo(f"{requests:,} in {len(groups):,} {'group' if len(groups) == 1 else 'groups'}")
    if found.precision != "exact":
        click.echo("percentiles within 1 %, from rollups per minute and hour")
    if found.overflowed:
        click.echo(f"{found.overflowed:,} requests are counted as {OTHER}: too many label values")
    if found.simulated:
        click.echo("simulated data")
    for source, less in LESS.items():
        if number := found.sources.get(source.value):
            click.echo(f"{number:,} {less}")
    click.echo()
    names = [[text.label(group[name]) for name in dimensions] for group in groups]
    counts = [
        [
            *name,
            text.count(group["requests"]),
            text.count(group["errors"]),
            text.count(group["aborted"]),
            text.rate(group["throughput_rps"]),
            text.rate(group["output_tokens_per_s"]),
        ]
        for name, group in zip(names, groups, strict=True)
    ]
    header = [*dimensions, "requests", "errors", "aborted", "req/s", "output tokens/s"]
    for line in text.table(header, counts, left=len(dimensions), keep=len(header)):
        click.echo(line)
    click.echo()
    latencies = [
        [
            title,
            *name,
            *(text.seconds(group[latency][point]) for point in PERCENTILES),
            _interval(group[latency]),
        ]
        for latency, title in _TITLES.items()
        for name, group in zip(names, groups, strict=True)
    ]
    header = ["latency", *dimensions, *PERCENTILES, "p99 interval (95 %)"]
    for line in text.table(header, latencies, left=1 + len(dimensions), keep=len(header)):
        click.echo(line)


def _interval(latency: dict[str, float | None]) -> str:
    if latency["p99"] is None:
        return text.UNKNOWN
    if latency["p99_low"] is None:
        return "too few requests"
    return f"{text.seconds(latency['p99_low'])} to {text.seconds(latency['p99_high'])}"
