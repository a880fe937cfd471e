"""A comparison as JSON, for the command, the HTTP API and assistants."""

from dataclasses import asdict
from math import expm1
from typing import Any

from analysis.compare.answer import CompareAnswer
from analysis.compare.question import CompareSide


def as_json(answer: CompareAnswer) -> dict[str, Any]:
    """A JSON object, with null for unknown values."""
    question, found = answer.question, answer.decision
    parts, change_s = found.parts, found.change_s
    known = None not in (found.before_s, found.after_s)
    return {
        "verdict": found.verdict.value,
        "metric": question.metric,
        "quantile": question.quantile,
        "margin": question.margin,
        "looks": "all" if question.looks else "one",
        "before": _side(question.before),
        "after": _side(question.after),
        "requests_before": answer.requests_before,
        "requests_after": answer.requests_after,
        "before_s": found.before_s,
        "after_s": found.after_s,
        "total_s": (found.after_s or 0.0) - (found.before_s or 0.0) if known else None,
        "mix_s": None if parts is None else parts.mix_s,
        "load_s": None if parts is None else parts.load_s,
        "change_s": None if parts is None else parts.change_s,
        "change_low_s": None if change_s is None else change_s.low,
        "change_high_s": None if change_s is None else change_s.high,
        "change_ratio": found.change_ratio,
        "change_low_ratio": None if found.ratio is None else found.ratio.low,
        "change_high_ratio": None if found.ratio is None else found.ratio.high,
        "total_change_s": answer.total.total_change_s,
        "total_change_reason": answer.total.reason,
        "predicted": _predicted(answer),
        "restart": _restart(answer),
        "compared_ratio": found.compared_ratio,
        "uncompared": list(found.uncompared),
        "uncompared_s": None if parts is None else parts.uncompared_s,
        "effective_requests": found.effective,
        "curve": [each._asdict() for each in found.curve],
        "coefficients": _coefficients(answer),
        "objectives": [asdict(each) for each in answer.objectives],
        "reasons": list(found.reasons),
        "notes": list(answer.notes),
        "simulated": answer.simulated,
    }


def _side(side: CompareSide) -> dict[str, Any]:
    return {
        "from": side.window.from_unix_ns / 1e9,
        "to": side.window.to_unix_ns / 1e9,
        "where": dict(side.equals),
    }


def _coefficients(answer: CompareAnswer) -> dict[str, Any] | None:
    found = answer.coefficients
    if found is None:
        return None
    return {
        **{
            name: {"before_s": asdict(found.before[name]), "after_s": asdict(found.after[name])}
            for name in found.before
        },
        "pace": asdict(found.pace),
    }


def _restart(answer: CompareAnswer) -> dict[str, Any] | None:
    found = answer.restart
    if found is None:
        return None
    known = found.log_sd is not None
    return {
        "processes": found.processes,
        "sd_ratio": expm1(found.log_sd or 0.0) if known else None,
        "half_ratio": expm1(found.log_half) if known else None,
    }


def _predicted(answer: CompareAnswer) -> dict[str, Any] | None:
    found = answer.expected
    if found is None:
        return None
    return {
        "asked": found.asked_unix_ns / 1e9,
        "change": found.change,
        "ratio": found.ratio.value,
        "low_ratio": found.ratio.low,
        "high_ratio": found.ratio.high,
        "measured_ratio": found.measured,
        "contained": found.contained,
    }
