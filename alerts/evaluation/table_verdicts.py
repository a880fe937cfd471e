"""Judge many requests: apply the rules of `request_verdicts` to the columns of an Arrow table.

A request without an outcome is in flight (`in_flight_verdicts`), and its durations are lower
bounds. For such a request, a comparison with a missing value is undecided, not "unknown".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.evaluation.request_verdicts import (
    AFTER,
    BELOW_ANY,
    CUT_SHORT,
    TOO_MANY_REQUESTS,
    RequestVerdict,
)
from alerts.expression import And, Expression, FieldComparison, IsUnknown, Not, Or, comparisons
from alerts.fields import BETWEEN_TOKENS
from store.schema import arrow_type
from telemetry.in_flight import SELECTED_BY
from telemetry.request_rows import RequestRows
from telemetry.requests import Outcome, RequestTimeline

ALWAYS: Final = ("outcome", "http_status", "output_tokens", "e2e_s")
"""Columns that every verdict needs."""

ALSO_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "ttft_s": ("streamed",),
    "first_content_s": ("ttft_s", "streamed", "content_tokens"),
    "tpot_s": ("decode_s", "delivery_s"),
    "itl_max_s": ("delivery_s",),
    **{field: (after,) for field, after in AFTER.items()},
}
"""Additional columns for requests that the client cancelled."""

VERDICTS: Final = tuple(RequestVerdict)
"""The verdicts in the order of the codes of `judge_table`."""

NOT_SELECTED: Final = -1

FUNCTIONS: Final = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}


def columns_of(*expressions: Expression | None) -> tuple[str, ...]:
    """Columns that the verdicts on these expressions need."""
    named = [leaf.field for each in expressions if each for leaf in comparisons(each)]
    needed = [column for field in named for column in ALSO_NEEDED.get(field, ())]
    return tuple(dict.fromkeys([*ALWAYS, *named, *needed]))


def table_of(requests: RequestRows, columns: Iterable[str]) -> pa.Table:
    """A table of requests that need not be in the store."""
    return pa.table({name: _array(requests, name) for name in columns})


def _array(requests: RequestRows, name: str) -> pa.Array:
    if name == "tpot_s":  # computed from other columns
        return pa.array(requests.numbers(name), from_pandas=True)
    return pa.array(requests.column(name), arrow_type(name, RequestTimeline))


def judge_table(where: Expression | None, good: Expression, table: pa.Table) -> np.ndarray:
    """Verdicts as indices into VERDICTS, or NOT_SELECTED (n,) int8. `table` has the columns of
    `columns_of`."""
    outcome, status = table["outcome"], pc.fill_null(table["http_status"], 0)
    aborted = pc.fill_null(pc.equal(outcome, Outcome.ABORT.value), True)
    met = _evaluate(good, table, aborted)
    good_mask, bad_mask = pc.fill_null(met, False), pc.fill_null(pc.invert(met), False)
    clients_fault = pc.and_(
        pc.and_(pc.greater_equal(status, 400), pc.less(status, 500)),
        pc.not_equal(status, TOO_MANY_REQUESTS),
    )
    rejected = pc.fill_null(pc.equal(outcome, Outcome.REJECTED.value), False)
    code = {verdict: place for place, verdict in enumerate(VERDICTS)}
    codes = np.select(
        [
            _mask(pc.fill_null(pc.equal(outcome, Outcome.ERROR.value), False)),
            _mask(pc.and_(rejected, clients_fault)),
            _mask(rejected),
            _mask(bad_mask),
            _mask(good_mask),
            _mask(aborted),
        ],
        [
            code[RequestVerdict.BAD],
            code[RequestVerdict.CLIENT_ERROR],
            code[RequestVerdict.BAD],
            code[RequestVerdict.BAD],
            code[RequestVerdict.GOOD],
            code[RequestVerdict.ABORTED],
        ],
        code[RequestVerdict.UNKNOWN],
    ).astype(np.int8)
    if where is not None:
        selected = _mask(pc.fill_null(_evaluate(where, table, aborted), False))
        codes[~selected] = NOT_SELECTED
    return codes


def _mask(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)


def _evaluate(expression: Expression, table: pa.Table, aborted: pa.ChunkedArray) -> pa.ChunkedArray:
    def leaf(part: FieldComparison | IsUnknown) -> pa.ChunkedArray:
        if isinstance(part, FieldComparison):
            return _compare(part, table, aborted)
        unknown = pc.is_null(_values(part.field, table, aborted)[0])
        if part.field in SELECTED_BY:
            return unknown
        undecided = pc.and_(unknown, pc.is_null(table["outcome"]))
        return pc.if_else(undecided, pa.scalar(None, pa.bool_()), unknown)

    return holds(expression, leaf)


def holds(
    expression: Expression, leaf: Callable[[FieldComparison | IsUnknown], pa.ChunkedArray]
) -> pa.ChunkedArray:
    """The value for each row: true, false, or null if unknown. `leaf` evaluates a comparison."""
    match expression:
        case FieldComparison() | IsUnknown():
            return leaf(expression)
        case Not(operand):
            return pc.invert(holds(operand, leaf))
        case And(operands):
            return _combined(pc.and_kleene, [holds(operand, leaf) for operand in operands])
        case Or(operands):
            return _combined(pc.or_kleene, [holds(operand, leaf) for operand in operands])


def _combined(join: pc.Function, found: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    result = found[0]
    for each in found[1:]:
        result = join(result, each)
    return result


def _values(
    field: str, table: pa.Table, aborted: pa.ChunkedArray
) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """A field's values, and a mask of the values that are lower bounds. The mask is None if all
    values are exact."""
    values = table[field]
    if field in ("ttft_s", "first_content_s"):
        none_yet = pc.equal(pc.fill_null(table["output_tokens"], 0), 0)
        whole = pc.fill_null(pc.invert(table["streamed"]), False)
        before = pc.and_(pc.is_null(table["ttft_s"]), pc.or_(none_yet, whole))
        if field == "first_content_s":
            no_content = pc.equal(table["content_tokens"], 0)
            before = pc.or_(before, pc.fill_null(no_content, False))
        running = pc.and_(pc.and_(aborted, pc.is_null(values)), before)
        return pc.if_else(running, table["e2e_s"], values), running
    if field in BETWEEN_TOKENS:
        tokens = table["output_tokens"]
        one_token = pc.fill_null(pc.less(tokens, 2), False)
        undefined = pc.and_(pc.and_(pc.is_null(values), one_token), pc.invert(aborted))
        cut, known = _until_it_left(field, values, table)
        begun = pc.and_(aborted, pc.fill_null(pc.greater(tokens, 0), False))
        values = pc.if_else(undefined, pa.scalar(BELOW_ANY), values)
        values = pc.if_else(begun, cut, values)
        return values, pc.and_(aborted, pc.invert(pc.and_(begun, known)))
    if field in AFTER:
        return values, pc.and_(aborted, pc.is_null(table[AFTER[field]]))
    return values, aborted if field in CUT_SHORT else None


def _until_it_left(
    field: str, values: pa.ChunkedArray, table: pa.Table
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The TPOT or ITL of cancelled requests up to the cancellation, and which of these values are
    known."""
    tokens, wait_s = table["output_tokens"], table["delivery_s"]
    if field == "tpot_s":
        some = pc.if_else(pc.equal(tokens, 0), pa.scalar(None, tokens.type), tokens)
        pace_s = pc.divide(pc.add(table["decode_s"], wait_s), pc.cast(some, pa.float64()))
        return pc.max_element_wise(values, pace_s), pc.is_valid(pace_s)
    known = pc.and_(
        pc.is_valid(wait_s), pc.or_(pc.is_valid(values), pc.fill_null(pc.equal(tokens, 1), False))
    )
    return pc.max_element_wise(values, wait_s), known


def _compare(
    comparison: FieldComparison, table: pa.Table, aborted: pa.ChunkedArray
) -> pa.ChunkedArray:
    values, running = _values(comparison.field, table, aborted)
    threshold = pa.scalar(comparison.value, values.type)
    compared = FUNCTIONS[comparison.operator](values, threshold)
    if running is None:
        return compared
    settles = pc.greater_equal if comparison.operator in ("<", ">=") else pc.greater
    undecided = pc.and_(running, pc.invert(settles(values, threshold)))
    return pc.if_else(undecided, pa.scalar(None, pa.bool_()), compared)
