"""Serialise an explanation as JSON. The keys are part of the public API. Pure."""

from dataclasses import asdict
from typing import Any, Final

from diagnosis.explanation import Cause, Explanation, Replay
from diagnosis.latency.attainment import Attainment
from diagnosis.latency.parts import PHASE
from diagnosis.question import Span

PHASES: Final = ("frontend", "queue", "prefill", "decode", "reasoning", "delivery", "unsplit")


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as a JSON object. Instants are in unix seconds, and unknown values are
    null."""
    question = explanation.question
    return {
        "verdict": explanation.verdict.value,
        "metric": question.metric.value,
        "where": dict(question.where),
        "window": _span(question.window),
        "baseline": _span(question.baseline),
        "requests": explanation.requests,
        "baseline_requests": explanation.baseline_requests,
        "requests_needed": explanation.needed,
        "slowest_share": explanation.tail_share,
        "baseline_s": explanation.baseline_s,
        "now_s": explanation.now_s,
        "excess_s": explanation.excess_s,
        # The growth has no confidence interval. In repeated simulations of three faults, such an
        # interval contained the true growth in only 7 % to 71 % of the cases.
        "excess_low_s": None,
        "excess_high_s": None,
        "onset": None if explanation.onset_unix_ns is None else explanation.onset_unix_ns / 1e9,
        "objectives": [_objective(each) for each in explanation.attainments],
        "causes": [_cause(cause) for cause in explanation.causes],
        "method": explanation.method.value,
        "not_replayed": explanation.not_replayed,
        "reproduced": _reproduced(explanation.replay),
        "unexplained_share": explanation.unexplained,
        "unexplained": {
            "share": explanation.unexplained,
            "low": explanation.unexplained_low,
            "high": explanation.unexplained_high,
        },
        "phases": _phases(explanation),
        "parts": [
            {
                "part": each.part,
                "baseline_s": each.baseline_s,
                "now_s": each.now_s,
                "excess_s": each.excess_s,
            }
            for each in explanation.parts
            if each.baseline_s or each.now_s
        ],
        "dimensions": [asdict(hit) for hit in explanation.dimensions],
        "dimensions_tested": explanation.dimensions_tested,
        "network": [{"cause": "network_or_client", **asdict(each)} for each in explanation.network],
        "doubts": list(explanation.contradictions),
    }


def _span(span: Span) -> dict[str, float]:
    return {"from": span.from_unix_ns / 1e9, "to": span.to_unix_ns / 1e9}


def _objective(each: Attainment) -> dict[str, Any]:
    return {
        "slo": each.slo,
        "threshold_s": each.threshold_s,
        "target_ratio": 1.0 - each.budget,
        "baseline_requests": each.baseline_requests,
        "baseline_kept_ratio": each.baseline_attained_ratio if each.baseline_requests else None,
        "requests": each.requests,
        "kept_ratio": each.attained_ratio if each.requests else None,
        "fell": each.fell if each.decides else None,
    }


def _reproduced(replay: Replay | None) -> dict[str, Any] | None:
    if replay is None:
        return None
    return {
        "requests": replay.requests,
        "baseline_s": {"measured": replay.baseline_s, "replayed": replay.replayed_baseline_s},
        "now_s": {"measured": replay.now_s, "replayed": replay.replayed_now_s},
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "share": cause.share,
        # Null for `ShareMethod.ACCOUNTING`, see `Cause`.
        "share_low": cause.low,
        "share_high": cause.high,
        "evidence": [asdict(each) for each in cause.evidence],
        "levers": [asdict(each) for each in cause.levers],
        "where": dict(cause.where),
    }


def _phases(explanation: Explanation) -> list[dict[str, Any]]:
    found = []
    for phase in PHASES:
        parts = [part for part in explanation.parts if PHASE[part.part] == phase]
        was, now = sum(p.baseline_s for p in parts), sum(p.now_s for p in parts)
        if was or now:
            found.append({"phase": phase, "baseline_s": was, "now_s": now, "excess_s": now - was})
    return found
