"""Rows of engines, as the store returns them."""

from typing import Any

from telemetry.joined_request import HOP_COLUMNS, EngineRole, Row

S = 1_000_000_000
START_NS = 1_763_634_000 * S
ROLES: dict[tuple[str, int | None], EngineRole | None] = {
    ("p", 0): EngineRole.PREFILL,
    ("d", 0): EngineRole.DECODE,
}


def row(number: int, **values: Any) -> Row:
    """100 ms: 5 ms frontend, 10 ms queue, 50 ms prefill, 30 ms decode, 5 ms delivery."""
    known = {
        "received_unix_ns": START_NS,
        "trace_id": "ab" * 16,
        "span_id": f"{number:016x}",
        "request_id": "cmpl-x-0",
        "source": "instrumentation",
        "model": "llama",
        "tenant": "acme",
        "engine": 0,
        "outcome": "length",
        "streamed": True,
        "frontend_s": 0.005,
        "queue_s": 0.010,
        "queue_held_s": 0.0,
        "prefill_s": 0.050,
        "decode_s": 0.030,
        "delivery_s": 0.005,
        "ttft_s": 0.065,
        "e2e_s": 0.100,
        "prompt_tokens": 1_442,
        "cached_tokens": 0,
        "external_cached_tokens": 0,
        "output_tokens": 1,
        "cost_usd": 0.001,
    }
    return {**dict.fromkeys(HOP_COLUMNS), **known, **values}


def prefill(number: int = 1, **values: Any) -> Row:
    """100 ms, without decode."""
    about = {"replica": "p", "decode_s": 0.0, "delivery_s": 0.035, "outcome": "length"}
    return row(number, **{**about, **values})


def decode(number: int = 2, at_s: float = 0.120, **values: Any) -> Row:
    """400 ms, beginning 20 ms after the prefill row's end."""
    about = {
        "replica": "d",
        "received_unix_ns": START_NS + round(at_s * S),
        "prefill_s": 0.020,
        "ttft_s": 0.035,
        "decode_s": 0.350,
        "delivery_s": 0.015,
        "e2e_s": 0.400,
        "cached_tokens": 1_408,
        "external_cached_tokens": 1_408,
        "output_tokens": 32,
        "cost_usd": 0.002,
    }
    return row(number, **{**about, **values})
