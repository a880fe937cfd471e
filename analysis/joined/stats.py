"""Counts, rates, percentiles and means of joined requests, by labels.

A percentile of a phase covers only the requests that had this phase. The means of the phases sum to
the mean of the latency.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sqlalchemy import Engine

from analysis.stats import StatsQuestion, largest_first, percentiles
from store import queries
from store.joined.read import MAX_ROWS, read_joined
from telemetry.joined_request import JOINED_PHASES, EngineRole, JoinedBasis, JoinedRequest
from telemetry.requests import Outcome
from telemetry.window import Window

JOINED_DIMENSIONS: Final = (
    *("outcome", "basis", "model", "lora", "route", "tenant", "region", "streamed"),
    *("prefill_replica", "decode_replica"),
)

JOINED_LATENCIES: Final = ("ttft_s", "first_content_s", "tpot_s", "e2e_s")

_ROLES: Final = {"prefill_replica": EngineRole.PREFILL, "decode_replica": EngineRole.DECODE}
_Phases = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class JoinedStats:
    """The statistics of each group of joined requests.

    `truncated` is True if only the newest rows of the window were joined. The rates are then
    unknown.
    """

    groups: list[dict[str, Any]]
    window: Window
    simulated: bool
    truncated: bool


def answer_joined_stats(
    engine: Engine, question: StatsQuestion, max_rows: int = MAX_ROWS
) -> JoinedStats:
    """Compute the statistics of each group of joined requests.

    Raises:
        ValueError: joined requests cannot be grouped by a label, or `precision` is `sketch`.
    """
    if question.precision == "sketch":
        raise ValueError("precision sketch: rollups do not have joined requests; allowed: exact")
    if unknown := [name for name in question.by if name not in JOINED_DIMENSIONS]:
        raise ValueError(
            f"joined requests cannot be grouped by {', '.join(unknown)};"
            f" allowed: {', '.join(JOINED_DIMENSIONS)}"
        )
    found = read_joined(engine, question.window, question.equals, max_rows)
    window = question.window
    length_s = None if found.truncated else window.length_s
    groups = joined_stats(found.requests, question.by, length_s)
    simulated = queries.simulated(engine, window)
    return JoinedStats(groups, window, simulated, found.truncated)


def joined_stats(
    requests: Iterable[JoinedRequest], by: Sequence[str], length_s: float | None
) -> list[dict[str, Any]]:
    """The statistics of each group, the largest group first.

    Args:
        by: labels of `JOINED_DIMENSIONS`, or none for a single group.
        length_s: the length of the window, or None if unknown.
    """
    grouped: defaultdict[tuple[Any, ...], list[JoinedRequest]] = defaultdict(list)
    for each in requests:
        grouped[tuple(_label(each, name) for name in by)].append(each)
    groups = [
        {**dict(zip(by, values, strict=True)), **_stats(members, length_s)}
        for values, members in grouped.items()
    ]
    return largest_first(groups, by)


def _stats(members: Sequence[JoinedRequest], length_s: float | None) -> dict[str, Any]:
    outcomes = Counter(each.outcome for each in members)
    tokens = [each.last["output_tokens"] for each in members if each.complete]
    known = [each for each in tokens if each is not None]
    complete = [each for each in members if each.complete]
    first_bytes = [(each.ttft_s, each.ttft_phases) for each in complete if each.ttft_phases]
    return {
        "requests": len(members),
        "incomplete": len(members) - len(complete),
        "errors": outcomes[Outcome.ERROR.value],
        "aborted": outcomes[Outcome.ABORT.value],
        "measured_at": {
            basis.value: sum(each.basis is basis for each in members) for basis in JoinedBasis
        },
        "throughput_rps": length_s and len(members) / length_s,
        "output_tokens_per_s": length_s and sum(known) / length_s if known else None,
        **{
            name: _percentiles(getattr(each, name) for each in complete)
            for name in JOINED_LATENCIES
        },
        "phases": {
            phase: _percentiles(each.phases[phase] for each in complete) for phase in JOINED_PHASES
        },
        "means": {
            "ttft_s": _mean([ttft_s for ttft_s, _ in first_bytes]),
            "ttft_phases": _phase_means([phases for _, phases in first_bytes]),
            "e2e_s": _mean([each.e2e_s for each in complete]),
            "phases": _phase_means([each.phases for each in complete]),
        },
    }


def _percentiles(values_s: Iterable[float | None]) -> dict[str, float | None]:
    return percentiles(np.array([each for each in values_s if each is not None], np.float64))


def _mean(values_s: Sequence[float | None]) -> float | None:
    return sum(each or 0.0 for each in values_s) / len(values_s) if values_s else None


def _phase_means(requests: Sequence[_Phases]) -> dict[str, float | None]:
    """The mean of each phase.

    A request without the phase counts as 0 s. If no request has it, the mean is None."""
    return {
        phase: _mean([each[phase] for each in requests])
        if any(each[phase] is not None for each in requests)
        else None
        for phase in JOINED_PHASES
    }


def _label(request: JoinedRequest, name: str) -> Any:
    if name == "outcome":
        return request.outcome
    if name == "basis":
        return request.basis.value
    if name in _ROLES:
        hops = (hop.row["replica"] for hop in reversed(request.hops) if hop.role is _ROLES[name])
        return next(hops, None)
    return request.label(name)
