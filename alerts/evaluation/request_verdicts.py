"""Whether a request is an objective's affair, and whether it was good.

Three-valued (Kleene): a comparison with an unknown value is unknown, and stays so unless
the rest decides without it. What unknown counts as:

- `where` unknown: not selected. A request whose tenant is unknown is not `tenant == "a"`,
  nor is it `tenant != "a"`; `tenant is unknown` picks it.
- `good` unknown: neither good nor bad; left out and counted as such.

A request that failed or was refused by an overloaded server (429, 5xx, or who knows) is
bad, whatever its latencies. One refused for the client's own mistake (another 4xx) is left
out. A client that leaves ends the measurement early, and is judged by what it had got until
then (docs/decisions/012): what was still running is a lower bound. Bad, if that breaks the
promise already; good, if nothing that was still to come could have; else nobody can know, and
it is left out.

Source: METHODS, Google SRE Workbook ch. 2 (what counts as a valid event).
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from alerts.expression import And, Comparison, Expression, IsUnknown, Literal, Not, Or
from alerts.fields import BETWEEN_TOKENS
from telemetry.requests import Outcome, RequestTimeline


class Verdict(StrEnum):
    """What became of one selected request. All but the first two are left out of the ratio."""

    GOOD = "good"
    BAD = "bad"
    ABORTED = "aborted"
    CLIENT_ERROR = "client_error"
    UNKNOWN = "unknown"


EXCLUDED: Final = (Verdict.ABORTED, Verdict.CLIENT_ERROR, Verdict.UNKNOWN)

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
    """A duration that was still running when it was last seen."""

    value_s: float


def selects(where: Expression | None, request: RequestTimeline) -> bool:
    """Whether the request is among those meant; all are where nothing is said."""
    return where is None or _holds(where, request) is True


def judge(good: Expression, request: RequestTimeline) -> Verdict:
    """What became of a selected request."""
    if request.outcome is Outcome.ERROR:
        return Verdict.BAD
    if request.outcome is Outcome.REJECTED:
        return Verdict.CLIENT_ERROR if clients_fault(request.http_status) else Verdict.BAD
    held = _holds(good, request)
    if held is None:
        return Verdict.ABORTED if request.outcome is Outcome.ABORT else Verdict.UNKNOWN
    return Verdict.GOOD if held else Verdict.BAD


def clients_fault(http_status: int | None) -> bool:
    """Whether a refusal says that the request was wrong, rather than the server unable."""
    return http_status is not None and 400 <= http_status < 500 and http_status != TOO_MANY_REQUESTS


def _holds(expression: Expression, request: RequestTimeline) -> bool | None:
    match expression:
        case Comparison():
            return _compare(expression, _value(expression.field, request))
        case IsUnknown(field):
            return _value(field, request) is None
        case Not(operand):
            held = _holds(operand, request)
            return None if held is None else not held
        case And(operands):
            found = {_holds(operand, request) for operand in operands}
            return False if False in found else None if None in found else True
        case Or(operands):
            found = {_holds(operand, request) for operand in operands}
            return True if True in found else None if None in found else False


BELOW_ANY: Final = float("-inf")
"""Where there was nothing between two tokens, no gap was too long."""


AFTER: Final = {"frontend_s": "queue_s", "queue_s": "prefill_s", "prefill_s": "decode_s"}
"""The phase that follows: where a client left before it, the one before was still running."""
CUT_SHORT: Final = ("decode_s", "delivery_s", "e2e_s")
"""However far an answer had come, more of it was to come."""


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
    if field == "ttft_s" and value is None and (not tokens or request.streamed is False):
        return AtLeast(request.e2e_s)
    # The wait for a token that did not come was a gap, too: the client left in it.
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


def _one_token(request: RequestTimeline) -> bool:
    return request.output_tokens is not None and request.output_tokens < 2


def _compare(comparison: Comparison, value: Literal | AtLeast | None) -> bool | None:
    if value is None:
        return None
    compare = OPERATORS[comparison.operator]
    threshold = comparison.value
    if isinstance(value, AtLeast):
        # Known only where whatever is still to come changes nothing.
        decided = value.value_s > float(threshold) or (
            value.value_s == threshold and comparison.operator in ("<", ">=")
        )
        return compare(value.value_s, threshold) if decided else None
    return compare(value, threshold)
