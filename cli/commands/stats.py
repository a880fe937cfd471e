"""`tailspan stats`."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import click

from analysis.counted_requests import CountedAs, counting_notes
from analysis.joined.stats import JOINED_DIMENSIONS
from analysis.stats import (
    DIMENSIONS,
    MAX_READ,
    PERCENTILES,
    UNROLLED,
    StatsAnswer,
    StatsQuestion,
    answer_stats,
)
from cli.commands.joined_stats import print_joined_stats
from cli.options.question import (
    dimensions_of,
    nothing_found,
    open_selection,
    question_options,
    silence,
)
from cli.render import text
from telemetry.labels import OTHER
from telemetry.requests import Source

SOURCE_NOTES = {
    Source.NATIVE: "from the engine's native spans; vLLM's spans omit aborted and refused requests",
    Source.CLIENT: "from clients only: their latencies include the network",
}
"""Notes about requests that the instrumentation did not report."""

_TITLES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_max_s": "ITL max",
    "e2e_s": "E2E",
    "queue_s": "queue",
    "first_content_s": "first content",
}


@click.command(
    epilog="""\b
Examples:
  tailspan stats
  tailspan stats --last 1h --by model,tenant
  tailspan stats --by replica --where outcome=stop --format json
  tailspan stats --last 30d --by model
  tailspan stats --joined --by tenant
"""
)
@question_options
@click.option(
    "--by",
    default="",
    metavar="LABEL,LABEL",
    help=("Labels to group by.  [default: one group for all requests]"),
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "exact", "sketch"]),
    default="auto",
    show_default=True,
    help="exact reads the requests. sketch reads rollups, with an error of at most 1 %. auto is"
    f" exact for up to {MAX_READ:,} stored requests.",
)
@click.option(
    "--joined",
    is_flag=True,
    help="Join the rows of prefill and decode engines, and count each user request once. TTFT and"
    " E2E begin at the router or client.",
)
def stats(
    form: str,
    by: str,
    precision: Literal["auto", "exact", "sketch"],
    joined: bool,
    **options: Any,
) -> None:
    """Count requests and print latency percentiles, in groups.

    Percentiles are nearest-rank, over all requests with this latency and any outcome. p99_low to
    p99_high is the 95 % interval of the P99. Rates are averages over the whole window. The JSON has
    one object per line, with null for unknown values and for too few requests.

    If there are many requests, or if they were deleted, the statistics come from rollups, and
    `precision` is `sketch`. Percentiles are then within 1 %, the window is extended to whole
    minutes or hours, and the time to first content is null. If there are too many label values,
    rare ones are counted as `_other`. `partial` marks the groups from which requests may be missing
    for this reason.

    If prefill and decode are on different servers, a user request counts once, and `counted_as` is
    `joined_requests`. With rollups, or if --by or --where has replica, engine or config, the rows
    of servers are counted, and `counted_as` is `engine_rows`.

    With --joined, `phases` has the percentiles of each phase, over the requests with this phase.
    `means` has the mean TTFT and E2E, and the mean phases that sum to them. A request without a
    decode row is `incomplete`: its latencies are unknown. Only the newest 100,000 rows are joined.
    If there are more, `truncated` is true and the rates are null.
    """
    dimensions = dimensions_of(
        by,
        JOINED_DIMENSIONS if joined else DIMENSIONS,
        "joined requests" if joined else "requests",
    )
    selection = open_selection(**options)
    if joined:
        print_joined_stats(selection, form, dimensions, precision)
        return
    try:
        found = answer_stats(
            selection.engine,
            StatsQuestion(selection.window, selection.equals, dimensions, precision),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not found.groups:
        click.echo(nothing_found(selection), err=True)
        if found.hidden:
            click.echo(
                f"{found.hidden:,} requests of {OTHER} may match the filter: too many label values",
                err=True,
            )
        return
    if form == "json":
        for group in found.groups:
            about = {"precision": found.precision, "counted_as": found.counted_as}
            click.echo(json.dumps({**group, **about}, allow_nan=False))
    else:
        silent = silence(selection.engine, selection.window.to_unix_ns)
        _print_text(found, dimensions, silent)


def _print_text(found: StatsAnswer, dimensions: Sequence[str], silent: str | None) -> None:
    groups = found.groups
    requests = sum(group["requests"] for group in groups)
    if silent:
        click.echo(silent)
    click.echo(f"Requests received {text.span(found.window)}")
    click.echo(f"{requests:,} in {len(groups):,} {'group' if len(groups) == 1 else 'groups'}")
    for note in counting_notes(found.counted_as, found.without_prefill):
        click.echo(note)
    if found.counted_as is CountedAs.JOINED:
        click.echo("--joined adds the router and the phases.")
    if found.precision != "exact":
        click.echo(
            "percentiles within 1 %, from per-minute and hourly rollups, without the time to first"
            " content"
        )
    if found.overflowed:
        click.echo(f"{found.overflowed:,} requests are counted as {OTHER}: too many label values")
    if found.hidden:
        partial = sum(group["partial"] for group in groups)
        click.echo(
            f"incomplete: {partial:,} of {len(groups):,} groups, marked with +. Up to"
            f" {found.hidden:,} requests of {OTHER} may belong to these groups or match the filter"
        )
    if found.simulated:
        click.echo("simulated data")
    for source, less in SOURCE_NOTES.items():
        if number := found.sources.get(source.value):
            click.echo(f"{number:,} {less}")
    click.echo()
    names = [[text.label(group[name]) for name in dimensions] for group in groups]
    counts = [
        [
            *name,
            text.count(group["requests"]) + "+" * group["partial"],
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
            text.interval(group[latency]),
        ]
        for latency, title in _TITLES.items()
        if latency not in UNROLLED or any(group[latency]["p50"] is not None for group in groups)
        for name, group in zip(names, groups, strict=True)
    ]
    header = ["latency", *dimensions, *PERCENTILES, "p99 interval (95 %)"]
    for line in text.table(header, latencies, left=1 + len(dimensions), keep=len(header)):
        click.echo(line)
