"""Whether a request is an objective's affair, and whether it was good.

Three-valued (Kleene): a comparison with an unknown value is unknown, and stays so unless
the rest decides without it. What unknown counts as:

- `where` unknown: not selected. A request whose tenant is unknown is not `tenant == "a"`,
  nor is it `tenant != "a"`; `tenant is unknown` picks it.
- `good` unknown: neither good nor bad; left out and counted as such.

A request that failed or was refused by an overloaded server (429, 5xx, or who knows) is
bad, whatever its latencies. One refused for the client's own mistake (another 4xx) is left
out. A client that leaves ends the measurement early: what had been measured by then are
lower bounds. If they break the promise already (it left after the TTFT threshold without a
first token), the request is bad; otherwise nobody can know, and it is left out.

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
    if request.outcome is Outcome.ABORT:
        return Verdict.BAD if held is False else Verdict.ABORTED
    if held is None:
        return Verdict.UNKNOWN
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


def _value(field: str, request: RequestTimeline) -> Literal | AtLeast | None:
    value: Literal | None = getattr(request, field)
    if request.outcome is Outcome.ABORT:
        if field == "ttft_s" and value is None and not request.output_tokens:
            return AtLeast(request.e2e_s)
        if field in ("e2e_s", "itl_max_s") and value is not None:
            return AtLeast(float(value))
        return value
    if value is None and field in BETWEEN_TOKENS and _one_token(request):
        return BELOW_ANY
    return value


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
