"""Joined requests as text. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from analysis.cause_sentences import NAMES
from analysis.joined.explain import JoinedExplanation, Pool, TailGrowth
from analysis.joined.requests import TRUNCATED
from analysis.joined.words import PHASE_NAMES, servers_listed
from cli.render import text
from cli.render.explanation import cause_lines
from diagnosis.explanation import ExplanationVerdict
from diagnosis.question import Metric
from telemetry import time_text
from telemetry.joined_request import JOINED_PHASES, JoinedRequest, RequestHop

_LABELS: Final = ("model", "tenant")


def joined_lines(requests: Sequence[JoinedRequest]) -> Iterator[str]:
    """Yield a table with a row for each request."""
    rows = [
        [
            time_text.moment(each.started_unix_ns),
            text.label(each.last["request_id"]),
            *(text.label(each.label(name)) for name in _LABELS),
            " → ".join(_engine(hop) for hop in each.hops),
            text.label(each.outcome),
            each.basis.value,
            *(text.seconds(each.phases[phase]) for phase in JOINED_PHASES),
            text.seconds(each.ttft_s),
            text.seconds(each.e2e_s),
            text.usd(each.cost_usd),
        ]
        for each in requests
    ]
    header = ["started (UTC)", "request_id", *_LABELS, "engines", "outcome", "basis"]
    columns = [*header, *PHASE_NAMES.values(), "TTFT", "E2E", "cost"]
    yield from text.table(columns, rows, left=len(header))


def explanation_lines(found: JoinedExplanation, metric: Metric) -> Iterator[str]:
    """Yield the phases of the slowest joined requests, and the causes in each pool."""
    name = NAMES[metric.value]
    yield (
        f"{text.count(found.requests)} joined requests (prefill and decode on different servers),"
        f" {text.count(found.baseline_requests)} in the baseline."
    )
    if found.truncated:
        yield TRUNCATED
    if found.growth is not None:
        yield from _growth(found.growth, name)
    for pool in found.pools:
        yield ""
        yield from _pool(pool)
    yield ""
    yield "All servers, where a joined request counts once per server:"


def _growth(growth: TailGrowth, name: str) -> Iterator[str]:
    which = (
        "all"
        if growth.slowest_share == 1.0
        else f"the slowest {text.percent(growth.slowest_share, 0)}"
    )
    was, now = text.seconds(growth.baseline_s), text.seconds(growth.now_s)
    yield f"The user's {name} of {which}: {now}, was {was}."
    rows = [
        [PHASE_NAMES[each.phase], *_grown(each.baseline_s, each.now_s)]
        for each in growth.phases
        if max(each.baseline_s, each.now_s) > 0
    ]
    rows.append(["sum", *_grown(growth.baseline_s, growth.now_s)])
    yield from text.table([f"phase of {which}", "before", "now", "growth"], rows, left=1)


def _grown(was_s: float, now_s: float) -> tuple[str, str, str]:
    return text.seconds(was_s), text.seconds(now_s), _signed(now_s - was_s)


def _signed(grown_s: float) -> str:
    return f"{'+' if grown_s >= 0 else ''}{text.seconds(grown_s)}"


def _pool(pool: Pool) -> Iterator[str]:
    servers = servers_listed(pool.replicas, text.label)
    where = f"{pool.role.value.capitalize()} pool ({servers})"
    why = pool.explanation
    name = NAMES[why.question.metric.value]
    if pool.excess_s is not None:
        where += f", growth of its phases {_signed(pool.excess_s)}"
    if why.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        yield f"{where}: too little data."
        return
    was, now = text.seconds(why.baseline_s), text.seconds(why.now_s)
    change = "rose" if why.verdict is ExplanationVerdict.INCIDENT else "did not grow"
    slowest = f"slowest {text.percent(why.tail_share or 0, 0)}"
    yield f"{where}: {name} of its {slowest} {change}: {now}, was {was}."
    for cause in why.causes:
        yield from cause_lines(cause, name)


def _engine(hop: RequestHop) -> str:
    name = text.label(hop.server)
    return f"{name} (recomputed)" if hop.recomputed else name
