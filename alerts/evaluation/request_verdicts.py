"""Judge single requests: whether an objective selects a request, and whether the request was good.

Expressions use Kleene's three-valued logic: a comparison with an unknown value is unknown.

- If `where` is unknown, the request is not selected. A request with an unknown tenant matches
  neither `tenant == "a"` nor `tenant != "a"`; `tenant is unknown` selects it.
- If `good` is unknown, the request is excluded.
- A request is bad if it failed, or if the server refused it with 429, 5xx or without a status. A
  request with any other 4xx status is the client's error and is excluded.
- The latencies of a cancelled request are lower bounds (docs/decisions/012). The request is bad if
  these bounds miss the objective. It is good if it could no longer have missed the objective. If
  neither is certain, the request is excluded.

Source: Google SRE Workbook, ch. 2 (what counts as a valid event).
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from alerts.expression import And, Expression, FieldComparison, IsUnknown, Literal, Not, Or
from alerts.fields import BETWEEN_TOKENS
from telemetry.requests import Outcome, RequestTimeline


class RequestVerdict(StrEnum):
    """Verdict on a selected request. All verdicts except good and bad exclude the request."""

    GOOD = "good"
    BAD = "bad"
    ABORTED = "aborted"
    CLIENT_ERROR = "client_error"
    UNKNOWN = "unknown"


EXCLUDED: Final = (RequestVerdict.ABORTED, RequestVerdict.CLIENT_ERROR, RequestVerdict.UNKNOWN)

TOO_MANY_REQUESTS: Final = 429

OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A lower bound of a duration. The client cancelled the request before the duration ended."""

    value_s: float


def selects(where: Expression | None, request: RequestTimeline) -> bool:
    """Return whether the objective selects the request. If `where` is None, it selects every
    request."""
    return where is None or _evaluate(where, request) is True


def judge(good: Expression, request: RequestTimeline) -> RequestVerdict:
    """Verdict on a selected request."""
    if request.outcome is Outcome.ERROR:
        return RequestVerdict.BAD
    if request.outcome is Outcome.REJECTED:
        return (
            RequestVerdict.CLIENT_ERROR
            if clients_fault(request.http_status)
            else RequestVerdict.BAD
        )
    met = _evaluate(good, request)
    if met is None:
        return (
            RequestVerdict.ABORTED if request.outcome is Outcome.ABORT else RequestVerdict.UNKNOWN
        )
    return RequestVerdict.GOOD if met else RequestVerdict.BAD


def clients_fault(http_status: int | None) -> bool:
    """Return whether the status is the client's error: a 4xx status other than 429."""
    return http_status is not None and 400 <= http_status < 500 and http_status != TOO_MANY_REQUESTS


def _evaluate(expression: Expression, request: RequestTimeline) -> bool | None:
    match expression:
        case FieldComparison():
            return _compare(expression, _value(expression.field, request))
        case IsUnknown(field):
            return _value(field, request) is None
        case Not(operand):
            met = _evaluate(operand, request)
            return None if met is None else not met
        case And(operands):
            found = {_evaluate(operand, request) for operand in operands}
            return False if False in found else None if None in found else True
        case Or(operands):
            found = {_evaluate(operand, request) for operand in operands}
            return True if True in found else None if None in found else False


BELOW_ANY: Final = float("-inf")
"""A response with fewer than two tokens has no time between tokens. This value is used instead,
because it meets every limit."""


AFTER: Final = {"frontend_s": "queue_s", "queue_s": "prefill_s", "prefill_s": "decode_s"}
"""Maps each phase to the next phase. If the next phase has no value, the duration of the phase is a
lower bound."""
CUT_SHORT: Final = ("decode_s", "delivery_s", "e2e_s")
"""Fields that are lower bounds if the client cancelled."""


def _value(field: str, request: RequestTimeline) -> Literal | AtLeast | None:
    value: Literal | None = getattr(request, field)
    if request.outcome is Outcome.ABORT:
        return _until_it_left(field, value, request)
    if value is None and field in BETWEEN_TOKENS and _one_token(request):
        return BELOW_ANY
    return value


def _until_it_left(
    field: str, value: Literal | None, request: RequestTimeline
) -> Literal | AtLeast | None:
    tokens, wait_s = request.output_tokens, request.delivery_s
    nothing_sent = request.ttft_s is None and (not tokens or request.streamed is False)
    if field == "ttft_s" and nothing_sent:
        return AtLeast(request.e2e_s)
    if field == "first_content_s" and value is None and (nothing_sent or _no_content(request)):
        return AtLeast(request.e2e_s)
    # The wait before the cancellation counts as a gap between tokens.
    if field == "tpot_s" and tokens and request.decode_s is not None and wait_s is not None:
        pace_s = (request.decode_s + wait_s) / tokens
        return pace_s if value is None else max(float(value), pace_s)
    if field == "itl_max_s" and tokens and wait_s is not None:
        if value is None:
            return wait_s if tokens == 1 else AtLeast(wait_s)
        return max(float(value), wait_s)
    running = (
        field in CUT_SHORT
        or field in BETWEEN_TOKENS
        or (field in AFTER and getattr(request, AFTER[field]) is None)
    )
    return AtLeast(float(value)) if running and value is not None else value


def _no_content(request: RequestTimeline) -> bool:
    return request.content_tokens == 0


def _one_token(request: RequestTimeline) -> bool:
    return request.output_tokens is not None and request.output_tokens < 2


def _compare(comparison: FieldComparison, value: Literal | AtLeast | None) -> bool | None:
    if value is None:
        return None
    compare = OPERATORS[comparison.operator]
    threshold = comparison.value
    if isinstance(value, AtLeast):
        # A comparison with a lower bound is decided only if every larger value gives the same
        # result.
        decided = value.value_s > float(threshold) or (
            value.value_s == threshold and comparison.operator in ("<", ">=")
        )
        return compare(value.value_s, threshold) if decided else None
    return compare(value, threshold)
