"""The result of a probe as a JSON object. Never remove a key, because other programs read the
object."""

import json
from typing import Any

from telemetry.probes import Probe

_FIRST = (
    *("region", "endpoint", "kind", "outcome", "late_s", "dns_s", "connect_s", "tls_s"),
    *("written_s", "first_byte_s", "first_event_s", "first_reasoning_s", "first_content_s"),
    *("itl_max_s", "e2e_s", "output_tokens", "request_id", "cost_usd"),
)
_FURTHER = (
    *("model", "error_type", "error", "http_status", "twin", "chunks", "prompt_tokens"),
    *("cached_tokens", "reasoning_tokens", "certificate_ends_unix_s", "trace_id"),
    *("cache", "cache_result", "server_queue_s", "server_prefill_s", "server_decode_s"),
)


def as_object(result: Probe) -> dict[str, Any]:
    """A result as a JSON object. Unknown values are None."""
    values = {name: getattr(result, name) for name in (*_FIRST, *_FURTHER)}
    return {"at": result.at_unix_ns / 1e9, **values}


def json_line(result: Probe) -> str:
    """A result as one line of JSON."""
    return json.dumps(as_object(result), allow_nan=False)
