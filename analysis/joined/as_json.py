"""Joined requests as JSON objects."""

from typing import Any, Final

from telemetry.joined_request import JOINED_PHASES, JoinedRequest, RequestHop

LABELS: Final = ("model", "lora", "route", "tenant", "region")
_HOP_KEYS: Final = (
    *("replica", "engine", "trace_id", "span_id", "request_id", "config", "outcome", "source"),
    *("frontend_s", "queue_s", "kv_load_s", "prefill_s", "decode_s", "delivery_s"),
    *("ttft_s", "first_content_s", "e2e_s"),
    *("prompt_tokens", "cached_tokens", "external_cached_tokens", "output_tokens", "cost_usd"),
)


def joined_json(request: JoinedRequest) -> dict[str, Any]:
    """A joined request as a JSON object. Users depend on its keys."""
    last = request.last
    return {
        "trace_id": last["trace_id"],
        "request_id": last["request_id"],
        "started_at": request.started_unix_ns / 1e9,
        **{name: request.label(name) for name in LABELS},
        "outcome": request.outcome,
        "complete": request.complete,
        "hops": [_hop_json(each) for each in request.hops],
        "phases": dict(request.phases),
        "ttft_s": request.ttft_s,
        "ttft_phases": None if request.ttft_phases is None else dict(request.ttft_phases),
        "first_content_s": request.first_content_s,
        "tpot_s": request.tpot_s,
        "e2e_s": request.e2e_s,
        "basis": request.basis.value,
        "joined_by": None if request.joined_by is None else request.joined_by.value,
        "prompt_tokens": request.label("prompt_tokens"),
        "cached_tokens": last["cached_tokens"] if request.complete else None,
        "output_tokens": last["output_tokens"] if request.complete else None,
        "cost_usd": request.cost_usd,
    }


def _hop_json(hop: RequestHop) -> dict[str, Any]:
    row = hop.row
    return {
        "role": hop.role.value,
        "received_at": row["received_unix_ns"] / 1e9,
        "clock_shift_s": hop.clock_shift_s,
        "recomputed": hop.recomputed,
        **{name: row[name] for name in _HOP_KEYS},
    }


SORTABLE: Final = (
    *("started_at", *LABELS, "outcome", "ttft_s", "first_content_s", "tpot_s", "e2e_s"),
    *JOINED_PHASES,
    *("basis", "prompt_tokens", "cached_tokens", "output_tokens", "cost_usd", "request_id"),
)
"""The keys by which joined requests can be sorted. The keys of phases are in the object
`phases`."""


def sort_value(request: JoinedRequest, key: str) -> Any:
    """The value of a key of `SORTABLE`."""
    if key in JOINED_PHASES:
        return request.phases[key]
    return joined_json(request)[key]
