"""The fields of requests and of probes that objectives may use.

`where` must not use latencies or the outcome. Otherwise, it could exclude slow or failed requests
from the count.
"""

from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_type_hints

from alerts.expression import Vocabulary
from telemetry.probes import SET_UP_PARTS, Probe, ProbeOutcome
from telemetry.requests import Outcome, RequestTimeline, Source

SELECTING: Final = (
    "model",
    "lora",
    "route",
    "tenant",
    "region",
    "replica",
    "operation",
    "config",
    "source",
    "streamed",
    "engine",
    "prompt_tokens",
)
GROUPING: Final = tuple(field for field in SELECTING if field != "prompt_tokens")
"""The fields that `by` may contain. Numeric fields such as `prompt_tokens` are not allowed, because
each number would be a group."""
DURATIONS: Final = (
    "ttft_s",
    "first_content_s",
    "tpot_s",
    "itl_max_s",
    "e2e_s",
    "queue_s",
    "frontend_s",
    "prefill_s",
    "decode_s",
    "delivery_s",
)
TOKENS: Final = ("output_tokens", "reasoning_tokens", "tool_call_tokens", "content_tokens")
JUDGING: Final = (*DURATIONS, *TOKENS, "outcome", "preemptions", "cost_usd")

BETWEEN_TOKENS: Final = frozenset({"tpot_s", "itl_max_s"})
"""Fields that are undefined for responses with fewer than two tokens."""


WAIT: Final = "wait_s"
"""The parts of a probe's wait: delay of the start, DNS, connection, TLS, and the answer."""
PROBE_SELECTING: Final = ("region", "endpoint", "model", "kind", "twin")
PROBE_GROUPING: Final = ("region", "endpoint", "model")
PROBE_ANSWER_DURATIONS: Final = (
    *(WAIT, "first_content_s", "first_reasoning_s", "first_event_s", "first_byte_s"),
    *("itl_max_s", "e2e_s"),
)
"""Durations that include the work of the model, or of a cache in front of the model."""
PROBE_DURATIONS: Final = (*PROBE_ANSWER_DURATIONS, *SET_UP_PARTS)
PROBE_JUDGING: Final = (*PROBE_DURATIONS, "outcome", "output_tokens", "cost_usd")


def _field_type(field: str, row: type = RequestTimeline) -> type:
    if field in ("tpot_s", WAIT):
        return float
    hint: Any = get_type_hints(row)[field]
    if isinstance(hint, UnionType):
        hint = next(arm for arm in get_args(hint) if arm is not NoneType)
    kind: type = str if issubclass(hint, Enum) else hint
    return kind


WHERE: Final = Vocabulary(
    kinds={field: _field_type(field) for field in SELECTING},
    choices={"source": tuple(Source)},
    why_not=dict.fromkeys(JUDGING, "is a result of the request; use it in good"),
)

GOOD: Final = Vocabulary(
    kinds={field: _field_type(field) for field in JUDGING},
    choices={"outcome": tuple(Outcome)},
    why_not=dict.fromkeys(SELECTING, "is a property of the request; use it in where"),
)

PROBE_WHERE: Final = Vocabulary(
    kinds={field: _field_type(field, Probe) for field in PROBE_SELECTING},
    choices={},
    why_not={
        **dict.fromkeys(SELECTING, "is a property of requests, not of probes"),
        **dict.fromkeys(PROBE_JUDGING, "is a result of the probe; use it in good"),
    },
)

PROBE_GOOD: Final = Vocabulary(
    kinds={field: _field_type(field, Probe) for field in PROBE_JUDGING},
    choices={"outcome": tuple(ProbeOutcome)},
    why_not={
        **dict.fromkeys(JUDGING, "is a result of requests, not of probes"),
        **dict.fromkeys(PROBE_SELECTING, "is a property of the probe; use it in where"),
    },
)
