from typing import Any

from telemetry.cold_starts import PARTS, ColdStart

START_NS = 1_763_634_000_000_000_000
PARTS_S = {
    "imports": 6.0,
    "config": 2.0,
    "engine_process": 7.0,
    "workers": 1.0,
    "device": 2.0,
    "weights": 20.0,
    "compile": 9.0,
    "kv_cache": 3.0,
    "warm_up": 5.0,
    "server": 1.0,
}
"""Seconds of each part, 56 s in total; the largest part is the weights."""


def cold_start(number: int = 0, parts: dict[str, float] | None = None, **about: Any) -> ColdStart:
    """Return a start that takes the sum of its parts."""
    parts = PARTS_S if parts is None else parts
    assert parts.keys() <= set(PARTS)
    return ColdStart(
        **{
            "trace_id": f"{number:032x}",
            "span_id": f"{number + 1:016x}",
            "at_unix_ns": START_NS + number * 10**9,
            "replica": "a",
            "engine": 0,
            "length_s": sum(parts.values()),
            "model": "llama",
            "config": "c0ffee",
            "version": "0.32.0",
            **{f"{part}_s": part_s for part, part_s in parts.items()},
            **about,
        }
    )
