"""The answer about probes as JSON. Published keys do not change; new keys may be added."""

from dataclasses import asdict
from typing import Any

from analysis.outside.answer import EndpointResults, Latency, OutsideAnswer


def as_json(answer: OutsideAnswer) -> dict[str, Any]:
    """Return the answer as a JSON object, with null for unknown values and times in unix
    seconds."""
    return {
        "from": answer.window.from_unix_ns / 1e9,
        "to": answer.window.to_unix_ns / 1e9,
        "read": answer.read,
        "scale": answer.scale,
        "unanswered_scale": answer.unanswered_scale,
        "step_s": answer.step_s,
        "places": [_place_json(each) for each in answer.endpoints],
        "left_out": answer.left_out,
    }


def _place_json(place: EndpointResults) -> dict[str, Any]:
    return {
        "region": place.region,
        "endpoint": place.endpoint,
        "model": place.model,
        "kind": place.kind,
        "hosting": place.hosting,
        "sent": place.sent,
        "answered": place.answered,
        "cached": place.cached,
        "success_ratio": place.success_ratio,
        "not_sent": dict(place.not_sent),
        "failures": [
            {
                "error_type": each.error_type,
                "error": each.sentence,
                "probes": each.probes,
                "newest_at": each.newest_unix_ns / 1e9,
            }
            for each in place.failures
        ],
        "wait_mean_s": place.wait_mean_s,
        "phases_s": _phases(place),
        "wait": _latency(place.wait),
        "first_content": _latency(place.first_content),
        "network": _latency(place.network),
        "cache": None if place.cache is None else asdict(place.cache),
        "prompt_tokens": place.prompt_tokens,
        "output_tokens": place.output_tokens,
        "cost_usd": place.cost_usd,
        "certificate_ends_at": place.certificate_ends_unix_s,
        "newest_at": place.newest_unix_ns / 1e9,
        "steps": [
            {
                "at": each.from_unix_ns / 1e9,
                "sent": each.sent,
                "answered": each.answered,
                "wait_p50_s": each.wait_p50_s,
            }
            for each in place.steps
            if each.sent
        ],
    }


def _phases(place: EndpointResults) -> dict[str, float | None] | None:
    if place.phases_s is None:
        return None
    unknown = () if place.network else ("server", "network")
    return {**place.phases_s, **dict.fromkeys(unknown)}


def _latency(latency: Latency | None) -> dict[str, Any] | None:
    return None if latency is None else asdict(latency)
