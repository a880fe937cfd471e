"""The fields of requests that objectives may use, derived from `RequestTimeline`.

`where` uses properties that a request has from its start. `good` uses its latencies and outcome.
`where` must not use latencies or the outcome, because it could then exclude slow or failed requests
from the count.
"""

from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_type_hints

from alerts.expression import Vocabulary
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
"""Fields that `by` may contain. `prompt_tokens` is not allowed, because each token count would form
its own group."""
DURATIONS: Final = (
    "ttft_s",
    "tpot_s",
    "itl_max_s",
    "e2e_s",
    "queue_s",
    "frontend_s",
    "prefill_s",
    "decode_s",
    "delivery_s",
)
JUDGING: Final = (*DURATIONS, "outcome", "output_tokens", "preemptions", "cost_usd")

BETWEEN_TOKENS: Final = frozenset({"tpot_s", "itl_max_s"})
"""Fields that are undefined for responses with fewer than two tokens."""


def _kind(field: str) -> type:
    if field == "tpot_s":
        return float
    hint: Any = get_type_hints(RequestTimeline)[field]
    if isinstance(hint, UnionType):
        hint = next(arm for arm in get_args(hint) if arm is not NoneType)
    kind: type = str if issubclass(hint, Enum) else hint
    return kind


WHERE: Final = Vocabulary(
    kinds={field: _kind(field) for field in SELECTING},
    choices={"source": tuple(Source)},
    why_not=dict.fromkeys(JUDGING, "is a result of the request; use it in good"),
)
"""The vocabulary of `where`."""

GOOD: Final = Vocabulary(
    kinds={field: _kind(field) for field in JUDGING},
    choices={"outcome": tuple(Outcome)},
    why_not=dict.fromkeys(SELECTING, "is a property of the request; use it in where"),
)
"""The vocabulary of `good`."""
