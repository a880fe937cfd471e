"""Counts, rates and latency percentiles of requests, by any labels."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.counted_requests import CountedAs, counted_as, read_counted_requests
from store import queries
from store.requests.best_source import asks_for_probes
from store.rollups.buckets import Quantiles, nearest_ranks
from store.rollups.queries import Rollups, rollups
from store.rollups.tables import LABELS as ROLLED_LABELS
from telemetry.labels import REQUEST_LABELS
from telemetry.probes import PROBE_TENANT
from telemetry.quantiles import FloatArray, interval_ranks, quantile, rank_interval
from telemetry.requests import LATENCIES, STORED_LATENCIES, Outcome
from telemetry.sketches import IntArray
from telemetry.window import Window

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

IDENTITIES: Final = ("trace_id", "span_id", "request_id")
"""Labels that identify a single request. Requests cannot be grouped by them."""

DIMENSIONS: Final = tuple(label for label in REQUEST_LABELS if label not in IDENTITIES)

MAX_READ: Final = 300_000
"""Maximum number of requests to read one by one. Reading them takes about a second."""

MAX_JOINED: Final = 100_000
"""Maximum number of rows to join if `precision` is `auto`. Joining them takes about 10 s of CPU:
15,000 rows took 1.5 s."""

UNROLLED: Final = tuple(name for name in STORED_LATENCIES if name not in LATENCIES)

_POINTS = (*PERCENTILES, "p99_low", "p99_high")


@dataclass(frozen=True, slots=True)
class StatsQuestion:
    """The requests to count, and the labels to group them by."""

    window: Window
    equals: Mapping[str, str | None] = field(default_factory=dict)
    by: Sequence[str] = ()
    precision: Literal["auto", "exact", "sketch"] = "auto"
    """`exact` reads the requests, `sketch` reads the rollups, and `auto` chooses between them."""


@dataclass(frozen=True, slots=True)
class StatsAnswer:
    """The statistics of each group, and how they were computed."""

    groups: list[dict[str, Any]]
    precision: Literal["exact", "sketch"]
    """For `sketch`, percentiles are within 1 % of an exact value."""
    window: Window
    simulated: bool
    overflowed: int = 0
    """Number of requests in groups with a label `_other`. Rollups replace a label's value with
    `_other` if the label has too many values."""
    hidden: int = 0
    """Number of requests under `_other` that may belong to a `partial` group, or may match the
    filter."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Number of requests from each source. Empty for `sketch`."""
    counted_as: CountedAs = CountedAs.REQUESTS
    without_prefill: int = 0
    """See `CountedRequests`."""


def reads_rows(labels: Collection[str], precision: str) -> bool:
    """Whether statistics by these labels are computed from rows, not from rollups."""
    return precision == "exact" or bool(set(labels) - set(ROLLED_LABELS))


def answer_stats(engine: Engine, question: StatsQuestion) -> StatsAnswer:
    """Compute the statistics of each group from the stored requests. If there are too many
    requests, or some were deleted, use rollups. Rollups contain the rows of engines.

    Raises:
        ValueError: a label does not exist, or `precision` is `sketch` and rollups do not exist or
            do not have a label.
    """
    window = question.window
    kind = counted_as(engine, window, [*question.equals, *question.by])
    most = MAX_JOINED if kind is CountedAs.JOINED else MAX_READ
    if question.precision == "exact" or not (found := _rolled_up(engine, question, most)):
        columns = [*question.by, *STORED_LATENCIES, "outcome", "output_tokens", "source"]
        counted = read_counted_requests(
            engine,
            window,
            equals=question.equals,
            columns=list(dict.fromkeys(columns)),
            by=question.by,
        )
        requests = counted.table
        return StatsAnswer(
            group_stats(requests, question.by, window) if requests.num_rows else [],
            "exact",
            window,
            queries.simulated(engine, window),
            sources=Counter(requests["source"].to_pylist()),
            counted_as=counted.counted_as,
            without_prefill=counted.without_prefill,
        )
    groups = rolled_stats(found, question.by)
    hidden = found.hidden()
    return StatsAnswer(
        groups,
        "sketch",
        found.plan.window,
        found.simulated,
        hidden.other,
        hidden.requests,
        counted_as=kind.in_rollups,
    )


def _rolled_up(engine: Engine, question: StatsQuestion, most: int) -> Rollups | None:
    window = question.window
    if asks_for_probes(question.equals):
        if question.precision == "sketch":
            raise ValueError(f"precision sketch: rollups leave out the tenant {PROBE_TENANT}")
        return None
    if unknown := {*question.by, *question.equals} - set(ROLLED_LABELS):
        if question.precision == "sketch":
            raise ValueError(
                f"precision sketch: rollups do not have {', '.join(sorted(unknown))};"
                f" allowed: {', '.join(ROLLED_LABELS)}"
            )
        return None
    found = rollups(engine, window, by=question.by, equals=question.equals)
    if question.precision == "sketch":
        if found is None:
            raise ValueError("precision sketch: the database has no rollups yet; allowed: exact")
        return found
    if found is None:
        return None
    gone = found.requests_deleted_before_unix_ns() > window.from_unix_ns
    return found if gone or found.number() > most else None


def group_stats(found: pa.Table, dimensions: Sequence[str], window: Window) -> list[dict[str, Any]]:
    """The statistics of each group, the largest group first.

    Args:
        found: requests with the dimensions, STORED_LATENCIES, `outcome` and `output_tokens`.
        dimensions: labels to group by, or empty for a single group.
    """
    length_s = window.length_s
    groups = [
        {**labels, **_stats(members, length_s)} for labels, members in _grouped(found, dimensions)
    ]
    return largest_first(groups, dimensions)


def largest_first(groups: list[dict[str, Any]], dimensions: Sequence[str]) -> list[dict[str, Any]]:
    """Sort groups by number of requests, largest first, and then by their labels."""
    return sorted(groups, key=lambda g: (-g["requests"], [str(g[d]) for d in dimensions]))


def rolled_stats(found: Rollups, dimensions: Sequence[str]) -> list[dict[str, Any]]:
    """The statistics of `group_stats`, computed from rollups.

    Latencies that rollups do not store are None. A group is `partial` if more of its requests may
    be under `_other`.
    """
    window = found.plan.counted
    length_s = window.length_s
    sums = found.sums(["output_tokens"])
    incomplete = found.hidden().groups
    quantiles = {latency: found.quantiles(latency, _ranks) for latency in LATENCIES}
    # These rollups contain the errors and the aborted requests of each group.
    by_outcome = found.again(by=(*dimensions, "outcome"))
    outcomes = by_outcome.sums(())
    ended = {
        by_outcome.groups[cell]: number
        for cell, number in zip(outcomes.cells.tolist(), outcomes.requests.tolist(), strict=True)
    }
    groups = []
    for row, (place, requests) in enumerate(
        zip(sums.cells.tolist(), sums.requests.tolist(), strict=True)
    ):
        group = found.groups[place]
        tokens = sums.facts["output_tokens"][row]
        groups.append(
            {
                **_group_labels(dimensions, group),
                "requests": requests,
                **{
                    name: ended.get((*group, outcome.value), 0)
                    for name, outcome in (("errors", Outcome.ERROR), ("aborted", Outcome.ABORT))
                },
                "throughput_rps": requests / length_s,
                "output_tokens_per_s": float(tokens[1]) / length_s if tokens[0] else None,
                **{
                    latency: dict(
                        zip(_POINTS, _values_or_none(quantiles[latency], place), strict=True)
                    )
                    for latency in LATENCIES
                },
                **{latency: dict.fromkeys(_POINTS) for latency in UNROLLED},
                "partial": group in incomplete,
            }
        )
    return largest_first(groups, dimensions)


def _ranks(total: IntArray) -> IntArray:
    """Ranks of the percentiles, and of the bounds of P99's interval."""
    interval = [interval_ranks(number, PERCENTILES["p99"]) or (0, 0) for number in total.tolist()]
    points = nearest_ranks(tuple(PERCENTILES.values()))(total)
    return np.concatenate([points, np.array(interval, np.int64).reshape(-1, 2)], axis=1)


def _values_or_none(found: Quantiles, place: int) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in found.value_s[place]]


def _group_labels(dimensions: Sequence[str], group: Sequence[str | None]) -> dict[str, Any]:
    named: dict[str, Any] = dict(zip(dimensions, group, strict=True))
    if named.get("streamed") is not None:
        named["streamed"] = named["streamed"] == "true"
    return named


def _grouped(
    found: pa.Table, dimensions: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
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
        **{
            latency: percentiles(members[latency].drop_null().to_numpy())
            for latency in STORED_LATENCIES
        },
        "partial": False,
    }


def percentiles(values_s: FloatArray) -> dict[str, float | None]:
    """The percentiles of latencies, and the 95 % interval of P99."""
    low, high = rank_interval(values_s, PERCENTILES["p99"]) or (None, None)
    points = {name: quantile(values_s, q) for name, q in PERCENTILES.items()}
    return {**points, "p99_low": low, "p99_high": high}
