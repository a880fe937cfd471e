"""Summarise the probes of one endpoint from one region. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from analysis.outside.answer import (
    PHASES,
    CacheEffect,
    EndpointResults,
    EndpointStep,
    FailedProbes,
    Hosting,
    Latency,
)
from analysis.outside.phases import COLUMNS as TIMES
from analysis.outside.phases import phases
from telemetry.probes import ProbeOutcome
from telemetry.quantiles import FloatArray, interval_ranks, quantile, rank_interval
from telemetry.sketches import IntArray
from telemetry.window import Window

COLUMNS: Final = (
    *("at_unix_ns", "region", "endpoint", "model", "kind", "outcome", "error_type", "error"),
    *("twin", "trace_id", "request_id", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("cost_usd", "certificate_ends_unix_s", *TIMES),
)
MAX_FAILURES: Final = 3
ONE_INTERVAL: Final = 1.5
"""Maximum time between two stored probes, as a multiple of the usual interval. If the time is
longer, at least one result between them is missing."""
_ANSWERED: Final = [each.value for each in ProbeOutcome if each.succeeded]
_UNCOUNTED: Final = [
    each.value for each in ProbeOutcome if not each.sent or each is ProbeOutcome.ABORT
]
_NS: Final = 10**9
_NO_SENTENCE: Final = "no reason was reported"

BoolArray = np.ndarray


@dataclass(frozen=True, slots=True)
class Results:
    """The results of probes as columns, sorted by place (endpoint, model and region) and then by
    time."""

    table: pa.Table
    at_unix_ns: IntArray
    answered: BoolArray
    measured: BoolArray
    """(n,) whether the model answered the probe, and not a cache in front of the model."""
    counted: BoolArray
    seconds: dict[str, FloatArray]
    server_s: FloatArray
    parts_s: FloatArray
    first_step_ns: int
    step_ns: int
    steps: int
    weight: FloatArray
    """(n,) the number of stored probes that each probe represents."""

    @classmethod
    def of(
        cls,
        table: pa.Table,
        server_s: Sequence[float | None],
        window: Window,
        step_s: int,
        scale: float,
        unanswered_scale: float,
    ) -> Self:
        """Convert a table with `COLUMNS` to results.

        Args:
            server_s: from `store.requests.network_time.server_times`.
            scale, unanswered_scale: as in `store.probes.ProbeSample`.
        """
        seconds = {name: _floats(table, name) for name in TIMES}
        server = np.array(server_s, dtype=np.float64)
        width_ns = step_s * _NS
        first = window.from_unix_ns // width_ns
        answered = cls.answered_of(table) & ~np.isnan(seconds["e2e_s"])
        last = max(first, (window.to_unix_ns - 1) // width_ns)
        return cls(
            table,
            table["at_unix_ns"].to_numpy(),
            answered,
            answered & ~cls._ended(table, [ProbeOutcome.CACHED.value]),
            ~cls._ended(table, _UNCOUNTED),
            seconds,
            server,
            phases(seconds, server),
            first * width_ns,
            width_ns,
            int(last - first) + 1,
            np.where(cls.answered_of(table), scale, unanswered_scale),
        )

    @classmethod
    def answered_of(cls, table: pa.Table) -> BoolArray:
        """Return which probes got a complete answer."""
        return cls._ended(table, _ANSWERED)

    @classmethod
    def failed_of(cls, table: pa.Table) -> BoolArray:
        """Return which probes were sent and got no complete answer."""
        return ~cls._ended(table, [*_ANSWERED, *_UNCOUNTED])

    @staticmethod
    def _ended(table: pa.Table, outcomes: Sequence[str]) -> BoolArray:
        column = table["outcome"].combine_chunks()
        good = np.array([each in outcomes for each in column.dictionary.to_pylist()], dtype=bool)
        found: BoolArray = good[column.indices.to_numpy(zero_copy_only=False)]
        return found


def endpoint_results_of(results: Results, start: int, end: int) -> EndpointResults:
    """Summarise the probes of one place: the rows from `start` up to `end`."""
    rows = slice(start, end)
    table = results.table.slice(start, end - start)
    answered, counted = results.answered[rows], results.counted[rows]
    measured = results.measured[rows]
    parts = results.parts_s[rows][measured]
    wait_s = parts.sum(axis=1)
    server_s = results.server_s[rows]
    first_s = results.seconds["first_event_s"][rows]
    network_s = (first_s - server_s)[measured & ~np.isnan(server_s)]
    cost = _floats(table, "cost_usd")
    ends = _floats(table, "certificate_ends_unix_s")
    ends = ends[~np.isnan(ends)]
    at = results.at_unix_ns[rows]
    weight = results.weight[rows]
    good = round(float(weight[answered & counted].sum()))
    return EndpointResults(
        region=table["region"][0].as_py(),
        endpoint=table["endpoint"][0].as_py(),
        model=table["model"][0].as_py(),
        kind=table["kind"][-1].as_py(),
        hosting=_hosting(server_s, cost),
        sent=good + round(float(weight[counted & ~answered].sum())),
        answered=good,
        cached=round(float(weight[answered & ~measured].sum())),
        not_sent=_not_sent(table, ~counted, weight),
        failures=_failures(table, counted & ~answered, at, weight),
        phases_s=dict(zip(PHASES, parts.mean(axis=0).tolist(), strict=True))
        if len(parts)
        else None,
        wait_mean_s=float(wait_s.mean()) if len(parts) else None,
        wait=_latency(wait_s),
        first_content=_latency(results.seconds["first_content_s"][rows][measured]),
        network=_latency(network_s),
        cache=_cache(table, at, first_s, measured),
        prompt_tokens=_total(table, "prompt_tokens", weight),
        output_tokens=_total(table, "output_tokens", weight),
        cost_usd=None if np.isnan(cost).all() else float(np.nansum(cost * weight)),
        certificate_ends_unix_s=float(ends[-1]) if len(ends) else None,
        newest_unix_ns=int(at[-1]),
        steps=_steps(results, rows, wait_s),
    )


def _hosting(server_s: FloatArray, cost: FloatArray) -> Hosting:
    if not np.isnan(server_s).all():
        return "self-hosted"
    return "unknown" if np.isnan(cost).all() else "managed"


def _latency(values_s: FloatArray) -> Latency | None:
    known = values_s[~np.isnan(values_s)]
    if not known.size:
        return None

    def at(share: float) -> float | None:
        return quantile(known, share) if interval_ranks(known.size, share) else None

    return Latency(known.size, float(quantile(known, 0.5) or 0.0), at(0.95), at(0.99))


def _failures(
    table: pa.Table, failed: BoolArray, at: IntArray, weight: FloatArray
) -> list[FailedProbes]:
    rows = np.flatnonzero(failed)
    some = table.select(["error_type", "error", "outcome"]).take(pa.array(rows)).to_pylist()
    found: dict[tuple[str, str], float] = defaultdict(float)
    newest: dict[tuple[str, str], int] = {}
    for place, row in zip(rows.tolist(), some, strict=True):
        key = (row["error_type"] or row["outcome"], row["error"] or _NO_SENTENCE)
        found[key] += float(weight[place])
        newest[key] = int(at[place])
    most = sorted(found.items(), key=lambda each: -each[1])[:MAX_FAILURES]
    return [FailedProbes(*key, round(number), newest[key]) for key, number in most]


def _cache(
    table: pa.Table, at: IntArray, first_s: FloatArray, measured: BoolArray
) -> CacheEffect | None:
    """The effect of the prefix cache.

    Return None if there are no pairs of a probe and its repetition."""
    if len(at) < 2:
        return None
    twin = table["twin"].fill_null(False).to_numpy()
    known = measured & ~np.isnan(first_s)
    apart_ns = np.diff(at)
    next_to = apart_ns <= ONE_INTERVAL * np.median(apart_ns)
    again = np.flatnonzero(next_to & twin[1:] & ~twin[:-1] & known[1:] & known[:-1]) + 1
    if not again.size:
        return None
    prompt, cached = (_floats(table, name)[again] for name in ("prompt_tokens", "cached_tokens"))
    difference_s = first_s[again] - first_s[again - 1]
    low_s, high_s = rank_interval(difference_s, 0.5) or (None, None)
    reported = ~np.isnan(prompt) & ~np.isnan(cached) & (prompt > 0)
    return CacheEffect(
        int(again.size),
        float(np.median(first_s[again - 1])),
        float(np.median(first_s[again])),
        float(np.median(difference_s)),
        low_s,
        high_s,
        float(cached[reported].sum() / prompt[reported].sum()) if reported.any() else None,
    )


def _steps(results: Results, rows: slice, wait_s: FloatArray) -> list[EndpointStep]:
    answered, counted = results.answered[rows], results.counted[rows]
    weight = results.weight[rows]
    at = np.clip(
        (results.at_unix_ns[rows] - results.first_step_ns) // results.step_ns, 0, results.steps - 1
    )

    def each_step(chosen: BoolArray) -> list[float]:
        found = np.bincount(at[chosen], weights=weight[chosen], minlength=results.steps)
        return [float(number) for number in found]

    good, failed = each_step(counted & answered), each_step(counted & ~answered)
    of_wait = at[results.measured[rows]]
    order = np.argsort(of_wait, kind="stable")
    bounds = np.searchsorted(of_wait[order], np.arange(results.steps + 1))
    return [
        EndpointStep(
            results.first_step_ns + step * results.step_ns,
            round(failed[step]) + round(good[step]),
            round(good[step]),
            float(np.median(wait_s[order[low:high]])) if high > low else None,
        )
        for step, (low, high) in enumerate(pairwise(bounds))
    ]


def _not_sent(table: pa.Table, chosen: BoolArray, weight: FloatArray) -> dict[str, int]:
    outcomes = table["outcome"].take(pa.array(np.flatnonzero(chosen))).to_pylist()
    found: dict[str, float] = defaultdict(float)
    for outcome, each in zip(outcomes, weight[chosen].tolist(), strict=True):
        found[outcome] += each
    return {outcome: round(number) for outcome, number in found.items()}


def _total(table: pa.Table, name: str, weight: FloatArray) -> int:
    return round(float(np.nansum(_floats(table, name) * weight)))


def _floats(table: pa.Table, name: str) -> Any:
    return np.asarray(table[name].cast(pa.float64()).to_numpy(), dtype=np.float64)
