"""Explain the latency of joined requests by the phases that grew and the causes in each pool.

A joined request was served by a prefill server and a decode server. A pool is all prefill servers,
or all decode servers. The pools are explained separately, because their engines do different work.
The prefill pool is explained by the E2E at its servers, because the user's TTFT contains the whole
time at the prefill engine. The decode pool is explained by the TTFT at its servers. An objective
limits the whole request and does not show which pool is too slow. So the verdict on a pool depends
only on the growth.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine

from analysis.explain import explain_question
from diagnosis.explanation import Explanation
from diagnosis.explanation_json import as_json
from diagnosis.latency.tail import MIN_TAIL_REQUESTS, SHARES
from diagnosis.question import Metric, Question, Span
from store.joined.read import JoinedAnswer, read_joined
from telemetry.joined_request import (
    DECODE,
    DECODE_QUEUE,
    JOINED_PHASES,
    KV_TRANSFER,
    PREFILL,
    PREFILL_QUEUE,
    EngineRole,
    JoinedRequest,
)
from telemetry.requests import Outcome
from telemetry.window import Window

_PHASES: Final = {
    EngineRole.PREFILL: (PREFILL_QUEUE, PREFILL),
    EngineRole.DECODE: (KV_TRANSFER, DECODE_QUEUE, DECODE),
}
"""The phases of each pool. The transfer of the KV cache belongs to the decode pool, because the
decode engine loads it."""
POOL: Final = "pool"
"""The key of a cause's `where` that names the pool: `prefill` or `decode`."""


class PhaseGrowth(NamedTuple):
    """The mean seconds of a phase in the slowest joined requests, in the baseline and in the
    window."""

    phase: str
    baseline_s: float
    now_s: float


@dataclass(frozen=True, slots=True)
class TailGrowth:
    """The mean latency of the slowest joined requests.

    It is the sum of the mean seconds of their phases."""

    slowest_share: float
    baseline_s: float
    now_s: float
    phases: tuple[PhaseGrowth, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """The servers of one pool, and the explanation of their latency. `excess_s` is the growth of
    the pool's phases in the slowest joined requests, or None if unknown."""

    role: EngineRole
    replicas: tuple[str, ...]
    explanation: Explanation
    excess_s: float | None = None


@dataclass(frozen=True, slots=True)
class JoinedExplanation:
    """The latency of joined requests in a window, compared with a baseline.

    `truncated` is True if only the newest rows of a range were joined. `growth` is None if the
    latency is neither TTFT nor E2E, or if one of the ranges has no joined request with this
    latency.
    """

    requests: int
    baseline_requests: int
    growth: TailGrowth | None
    pools: tuple[Pool, ...]
    truncated: bool = False


def explain_joined(engine: Engine, question: Question) -> JoinedExplanation | None:
    """Explain the joined requests of a question. Return None if there are no joined requests, or if
    the labels select a replica or an engine."""
    if not {"replica", "engine"}.isdisjoint(question.where):
        return None
    present = _read_span(engine, question.window, question.where)
    if not present.requests:
        return None
    known = _read_span(engine, question.baseline, question.where)
    before, now = known.requests, present.requests
    grown = growth(before, now, question.metric)
    pools = [
        Pool(
            role, replicas, _explain_pool(engine, question, role, replicas), _excess_s(grown, role)
        )
        for role, replicas in pools_of([*before, *now]).items()
    ]
    pools.sort(key=lambda pool: -(pool.excess_s or 0.0))
    return JoinedExplanation(
        requests=len(now),
        baseline_requests=len(before),
        growth=grown,
        pools=tuple(pools),
        truncated=known.truncated or present.truncated,
    )


def growth(
    before: Sequence[JoinedRequest], now: Sequence[JoinedRequest], metric: Metric
) -> TailGrowth | None:
    """How the phases of the slowest requests grew. See `JoinedExplanation.growth`.

    The share of requests that count as slowest is the smallest value in `SHARES` that gives enough
    requests in both ranges. If no share has enough requests, all requests are used.
    """
    known, present = ([_phases_of(each, metric) for each in side] for side in (before, now))
    old, new = ([each for each in side if each is not None] for side in (known, present))
    if not old or not new:
        return None
    fewest = min(len(old), len(new))
    share = next((each for each in SHARES if fewest * each >= MIN_TAIL_REQUESTS), 1.0)
    was, then = _slowest_means(old, share), _slowest_means(new, share)
    return TailGrowth(
        share,
        sum(was.values()),
        sum(then.values()),
        tuple(PhaseGrowth(phase, was[phase], then[phase]) for phase in JOINED_PHASES),
    )


def pools_of(requests: Sequence[JoinedRequest]) -> dict[EngineRole, tuple[str, ...]]:
    """The servers of each role. A server that served requests in both roles belongs to the role of
    most of its requests."""
    hops: defaultdict[str, Counter[EngineRole]] = defaultdict(Counter)
    for request in requests:
        for hop in request.hops:
            if hop.row["replica"] is not None:
                hops[hop.row["replica"]][hop.role] += 1
    role_of = {replica: counts.most_common(1)[0][0] for replica, counts in hops.items()}
    found = {
        role: tuple(sorted(each for each, its_role in role_of.items() if its_role is role))
        for role in EngineRole
    }
    return {role: replicas for role, replicas in found.items() if replicas}


def with_pools(explanation: Explanation, pools: Sequence[Pool]) -> Explanation:
    """Add to each cause at one server the name of the server's pool."""
    pool_of = {replica: each.role.value for each in pools for replica in each.replicas}
    causes = [
        replace(each, where={**each.where, POOL: pool_of[each.where["replica"]]})
        if each.where.get("replica") in pool_of
        else each
        for each in explanation.causes
    ]
    return replace(explanation, causes=causes)


def joined_explanation_json(found: JoinedExplanation) -> dict[str, Any]:
    """The explanation as a JSON object."""
    grown = found.growth
    return {
        "requests": found.requests,
        "baseline_requests": found.baseline_requests,
        "truncated": found.truncated,
        "slowest_share": None if grown is None else grown.slowest_share,
        "baseline_s": None if grown is None else grown.baseline_s,
        "now_s": None if grown is None else grown.now_s,
        "phases": [
            {
                "phase": each.phase.removesuffix("_s"),
                "baseline_s": each.baseline_s,
                "now_s": each.now_s,
                "excess_s": each.now_s - each.baseline_s,
            }
            for each in (() if grown is None else grown.phases)
        ],
        "pools": [
            {
                "role": each.role.value,
                "replicas": list(each.replicas),
                "excess_s": each.excess_s,
                "explanation": as_json(each.explanation),
            }
            for each in found.pools
        ],
    }


def _read_span(engine: Engine, span: Span, where: Mapping[str, str | None]) -> JoinedAnswer:
    return read_joined(engine, Window(span.from_unix_ns, span.to_unix_ns), where)


def _explain_pool(
    engine: Engine, question: Question, role: EngineRole, replicas: Sequence[str]
) -> Explanation:
    if role is EngineRole.PREFILL and question.metric is Metric.TTFT:
        question = replace(question, metric=Metric.E2E)
    found = explain_question(engine, question, (), frozenset(replicas))
    causes = [replace(each, where={**each.where, POOL: role.value}) for each in found.causes]
    return replace(found, causes=causes)


def _excess_s(grown: TailGrowth | None, role: EngineRole) -> float | None:
    if grown is None:
        return None
    own = (each for each in grown.phases if each.phase in _PHASES[role])
    return sum(each.now_s - each.baseline_s for each in own)


def _phases_of(request: JoinedRequest, metric: Metric) -> Mapping[str, float | None] | None:
    """The phases of a latency, or None if the request does not have this latency.

    The explanations of the pools select requests by the same rule
    (`diagnosis.latency.parts.has_latency`)."""
    if metric is Metric.TTFT and request.last["streamed"] is not False:
        return request.ttft_phases
    if metric is Metric.E2E and request.complete and Outcome(request.last["outcome"]).answered:
        return request.phases
    return None


def _slowest_means(
    requests: Sequence[Mapping[str, float | None]], share: float
) -> dict[str, float]:
    ordered = sorted(requests, key=lambda phases: -sum(filter(None, phases.values())))
    slowest = ordered[: max(1, round(share * len(ordered)))]
    return {
        phase: sum(each[phase] or 0.0 for each in slowest) / len(slowest) for phase in JOINED_PHASES
    }
