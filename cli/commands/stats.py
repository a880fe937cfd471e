"""`tailspan stats`: counts, rates and percentiles, by any labels."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.options.question import Question, ask, nothing_found, question_options, silence
from cli.render import text
from store import queries
from store.queries import Window
from store.rollups.buckets import Quantiles, nearest_ranks
from store.rollups.label_sets import OTHER
from store.rollups.queries import Rollups, rollups
from store.rollups.tables import LABELS as ROLLED_LABELS
from telemetry.quantiles import FloatArray, interval_ranks, quantile, rank_interval
from telemetry.requests import LATENCIES, Outcome, Source
from telemetry.sketches import IntArray

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

IDENTITIES = ("trace_id", "span_id", "request_id")
"""Labels that name one request: grouping by them groups nothing."""

DIMENSIONS = tuple(label for label in queries.REQUEST_LABELS if label not in IDENTITIES)

LESS = {
    Source.NATIVE: "told by the engine's own spans: none that was aborted or refused",
    Source.CLIENT: "told by clients alone: the network is in their times",
}
"""What is to be known of requests that the instrumentation did not tell of."""

MOST_READ = 300_000
"""Requests that are read one by one: about a second's work."""

EXACT = "exact"
SKETCHED = "sketch"

_POINTS = (*PERCENTILES, "p99_low", "p99_high")

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
    help="A group per combination of these labels' values; without it, all in one.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "exact", "sketch"]),
    default="auto",
    show_default=True,
    help="From the requests themselves, or from rollups, within 1 %. auto: exact up to"
    f" {MOST_READ:,} requests, as far back as they are kept.",
)
def stats(form: str, by: str, precision: str, **asked: Any) -> None:
    """Count requests and tell their percentiles, in groups.

    A latency's percentiles are of every request that has it, whatever its outcome; each is
    the latency of a request (nearest rank). p99_low to p99_high holds the 99th percentile 95
    times in 100; null where there are too few requests to know. Rates are over the whole
    window. As JSON one object a line, its labels first; null is unknown.

    Many requests, or long ago, are told from rollups: each latency within 1 % of one that was
    measured, and the window widened to whole minutes, or to hours where minutes are gone. The
    answer says so (precision).
    """
    dimensions = _dimensions(by)
    question = ask(**asked)
    try:
        found = _answer(question, dimensions, precision)
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and how."""

    groups: list[dict[str, Any]]
    precision: str
    """`exact`, or `sketch`: within 1 %."""
    window: Window
    simulated: bool
    overflowed: int = 0
    """Requests of which a label had no room of its own in the rollups."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Requests by who told of them; rollups do not tell."""


def _answer(question: Question, dimensions: list[str], precision: str) -> Answer:
    """By the requests themselves where they are few enough and still there, else by rollups.

    Raises:
        ValueError: a label that does not exist, or that rollups do not tell and must.
    """
    engine, window = question.engine, question.window
    if precision == "exact" or not (how := _rolled_up(question, dimensions, precision)):
        found = queries.request_table(
            engine,
            window,
            equals=question.equals,
            columns=list(
                dict.fromkeys([*dimensions, *LATENCIES, "outcome", "output_tokens", "source"])
            ),
        )
        groups = group_stats(found, dimensions, window) if found.num_rows else []
        less = Counter(found["source"].to_pylist())
        simulated = queries.simulated(engine, window)
        return Answer(groups, EXACT, window, simulated, sources=less)
    groups = rolled_stats(how, dimensions)
    return Answer(groups, SKETCHED, how.plan.window, how.simulated, how.overflowed())


def _rolled_up(question: Question, dimensions: list[str], precision: str) -> Rollups | None:
    """The rollups that answer; None where the requests are to."""
    asked = {*dimensions, *question.equals}
    if unknown := asked - set(ROLLED_LABELS):
        if precision == "sketch":
            raise ValueError(
                f"--precision sketch: rollups do not tell {', '.join(sorted(unknown))};"
                f" they do {', '.join(ROLLED_LABELS)}"
            )
        return None
    found = rollups(question.engine, question.window, by=dimensions, equals=question.equals)
    if found is None or precision == "sketch":
        return found
    gone = found.requests_gone_before_unix_ns() > question.window.from_unix_ns
    return found if gone or found.number() > MOST_READ else None


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
    return _largest_first(groups, dimensions)


def _largest_first(groups: list[dict[str, Any]], dimensions: Sequence[str]) -> list[dict[str, Any]]:
    return sorted(groups, key=lambda g: (-g["requests"], [str(g[d]) for d in dimensions]))


def rolled_stats(found: Rollups, dimensions: Sequence[str]) -> list[dict[str, Any]]:
    """The same of rollups."""
    window = found.plan.window
    length_s = (window.to_unix_ns - window.from_unix_ns) / 1e9
    # Outcomes are asked by, and added up again.
    sums = found.sums(["output_tokens"])
    told = {latency: found.quantiles(latency, _ranks) for latency in LATENCIES}
    # Outcomes are asked by, and added up again.
    by_outcome = found.again(by=(*dimensions, "outcome"))
    ended = dict(zip((c := by_outcome.sums(())).cells.tolist(), c.requests.tolist(), strict=True))
    groups = []
    for place, requests in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True):
        group = found.groups[place]
        tokens = sums.facts["output_tokens"][sums.cells == place][0]
        groups.append(
            {
                **_named(dimensions, group),
                "requests": requests,
                **{
                    name: sum(
                        number
                        for cell, number in ended.items()
                        if by_outcome.groups[cell] == (*group, outcome.value)
                    )
                    for name, outcome in (("errors", Outcome.ERROR), ("aborted", Outcome.ABORT))
                },
                "throughput_rps": requests / length_s,
                "output_tokens_per_s": float(tokens[1]) / length_s if tokens[0] else None,
                **{
                    latency: dict(zip(_POINTS, _known(told[latency], place), strict=True))
                    for latency in LATENCIES
                },
            }
        )
    return _largest_first(groups, dimensions)


def _ranks(total: IntArray) -> IntArray:
    """The percentiles, and between which ranks the 99th lies."""
    interval = [interval_ranks(number, PERCENTILES["p99"]) or (0, 0) for number in total.tolist()]
    points = nearest_ranks(tuple(PERCENTILES.values()))(total)
    return np.concatenate([points, np.array(interval, np.int64).reshape(-1, 2)], axis=1)


def _known(found: Quantiles, place: int) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in found.value_s[place]]


def _named(dimensions: Sequence[str], group: Sequence[str | None]) -> dict[str, Any]:
    """A group's labels, of the types that requests have them in."""
    named: dict[str, Any] = dict(zip(dimensions, group, strict=True))
    if named.get("streamed") is not None:
        named["streamed"] = named["streamed"] == "true"
    return named


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


def _print_text(found: Answer, dimensions: Sequence[str], silent: str | None) -> None:
    groups = found.groups
    requests = sum(group["requests"] for group in groups)
    if silent:
        click.echo(silent)
    click.echo(f"Requests received {text.span(found.window)}")
    click.echo(f"{requests:,} in {len(groups):,} {'group' if len(groups) == 1 else 'groups'}")
    if found.precision != EXACT:
        click.echo("percentiles within 1 %, from rollups by minute and hour")
    if found.overflowed:
        click.echo(f"{found.overflowed:,} requests have a label that had no room: {OTHER}")
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
    header = ["latency", *dimensions, *PERCENTILES, "p99 lies in (95 %)"]
    for line in text.table(header, latencies, left=1 + len(dimensions), keep=len(header)):
        click.echo(line)


def _interval(latency: dict[str, float | None]) -> str:
    if latency["p99"] is None:
        return text.UNKNOWN
    if latency["p99_low"] is None:
        return "too few to know"
    return f"{text.seconds(latency['p99_low'])} to {text.seconds(latency['p99_high'])}"
