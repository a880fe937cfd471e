"""`tailspan stats`: counts, rates and percentiles, by any labels."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli import text, times
from cli.options import Question, ask, nothing_found, question_options
from store import queries
from store.queries import Window
from telemetry.quantiles import FloatArray, quantile, rank_interval
from telemetry.requests import LATENCIES, Outcome

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

IDENTITIES = ("trace_id", "span_id", "request_id")
"""Labels that name one request: grouping by them groups nothing."""

DIMENSIONS = tuple(label for label in queries.REQUEST_LABELS if label not in IDENTITIES)

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
"""
)
@question_options
@click.option(
    "--by",
    default="",
    metavar="LABEL,LABEL",
    help="A group per combination of these labels' values; without it, all in one.",
)
def stats(form: str, by: str, **asked: Any) -> None:
    """Count requests and tell their percentiles, in groups.

    A latency's percentiles are of every request that has it, whatever its outcome; each is
    the latency of a request (nearest rank). p99_low to p99_high holds the 99th percentile 95
    times in 100; null where there are too few requests to know. Rates are over the whole
    window. As JSON one object a line, its labels first; null is unknown.
    """
    dimensions = _dimensions(by)
    question = ask(**asked)
    try:
        found = queries.request_table(
            question.engine,
            question.window,
            equals=question.equals,
            columns=list(dict.fromkeys([*dimensions, *LATENCIES, "outcome", "output_tokens"])),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not found.num_rows:
        click.echo(nothing_found(question), err=True)
        return
    groups = group_stats(found, dimensions, question.window)
    if form == "json":
        for group in groups:
            click.echo(json.dumps(group, allow_nan=False))
    else:
        _print_text(groups, dimensions, question, found.num_rows)


def group_stats(found: pa.Table, dimensions: Sequence[str], window: Window) -> list[dict[str, Any]]:
    """One object per group, the largest group first.

    Args:
        found: requests with the dimensions, LATENCIES, `outcome` and `output_tokens`.
        dimensions: labels to group by; none for one group of all.
        window: that the rates are over.
    """
    length_s = (window.to_unix_ns - window.from_unix_ns) / 1e9
    groups = [
        {**labels, **_stats(members, length_s)} for labels, members in _grouped(found, dimensions)
    ]
    groups.sort(key=lambda group: (-group["requests"], [str(group[d]) for d in dimensions]))
    return groups


def _grouped(
    found: pa.Table, dimensions: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The labels of each group and the requests in it."""
    if not dimensions:
        yield {}, found
        return
    numbered = found.append_column("row", pa.array(np.arange(found.num_rows)))
    grouped = numbered.group_by(list(dimensions), use_threads=False).aggregate([("row", "list")])
    for group in grouped.to_batches(max_chunksize=1):
        labels = {name: group[name][0].as_py() for name in dimensions}
        yield labels, found.take(group["row_list"].flatten())


def _stats(members: pa.Table, length_s: float) -> dict[str, Any]:
    def ended(outcome: Outcome) -> int:
        return int(pc.sum(pc.equal(members["outcome"], outcome.value)).as_py())

    output_tokens = pc.sum(members["output_tokens"]).as_py()
    return {
        "requests": members.num_rows,
        "errors": ended(Outcome.ERROR),
        "aborted": ended(Outcome.ABORT),
        "throughput_rps": members.num_rows / length_s,
        "output_tokens_per_s": None if output_tokens is None else output_tokens / length_s,
        **{latency: _percentiles(members[latency].drop_null().to_numpy()) for latency in LATENCIES},
    }


def _percentiles(values_s: FloatArray) -> dict[str, float | None]:
    low, high = rank_interval(values_s, PERCENTILES["p99"]) or (None, None)
    points = {name: quantile(values_s, q) for name, q in PERCENTILES.items()}
    return {**points, "p99_low": low, "p99_high": high}


def _dimensions(by: str) -> list[str]:
    names = [name.strip() for name in by.split(",")] if by.strip() else []
    for name in names:
        if name not in DIMENSIONS:
            raise click.UsageError(
                f"--by {by!r}: {name!r} is no label to group by; allowed: {', '.join(DIMENSIONS)}"
            )
        if names.count(name) > 1:
            raise click.UsageError(f"--by {by!r}: {name} is given twice")
    return names


def _print_text(
    groups: Sequence[dict[str, Any]], dimensions: Sequence[str], question: Question, requests: int
) -> None:
    click.echo(f"Requests received {times.span(question.window)}")
    click.echo(f"{requests:,} in {len(groups):,} {'group' if len(groups) == 1 else 'groups'}")
    if queries.simulated(question.engine, question.window):
        click.echo("simulated data")
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
    header = ["latency", *dimensions, *PERCENTILES, "p99 lies in (95 %)"]
    for line in text.table(header, latencies, left=1 + len(dimensions), keep=len(header)):
        click.echo(line)


def _interval(latency: dict[str, float | None]) -> str:
    if latency["p99"] is None:
        return text.UNKNOWN
    if latency["p99_low"] is None:
        return "too few to know"
    return f"{text.seconds(latency['p99_low'])} to {text.seconds(latency['p99_high'])}"
