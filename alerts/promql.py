"""A user's PromQL query, checked and made into a count of events over a window.

A query is a counter (`name{…}`), its sum, or an expression whose ranges are `[{{.window}}]`.
The grammar and the types are checked by promql-parser; what the rules rely on is checked here.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import promql_parser as promql

from alerts.errors import ExpressionError
from alerts.objectives import Query
from alerts.rulefile import quoted

WINDOW: Final = "{{.window}}"
MAX_CHARACTERS: Final = 10_000
MAX_PARTS: Final = 150
"""Brackets and operators of one query. The parser recurses: it takes 0.3 s for 150 nested
brackets and crashes at some thousands; the largest of Sloth's examples has 14."""

RATES: Final = ("rate",)
COUNTS: Final = ("increase", "sum_over_time", "count_over_time")

ALLOWED: Final = (
    "a counter (name{…}), its sum, or an expression in which every outermost range is"
    f" [{WINDOW}], inside rate() alone or inside {', '.join(COUNTS)}"
)

_PLACEHOLDER_S: Final = 7919
"""Stands for the window while a query is parsed: a prime, which nobody writes."""
_PLACEHOLDER: Final = timedelta(seconds=_PLACEHOLDER_S)

AROUND: Final = (
    *("abs", "ceil", "clamp", "clamp_max", "clamp_min", "floor", "histogram_count"),
    *("histogram_fraction", "label_join", "label_replace", "round", "scalar", "vector"),
)
"""Functions of counts that may still be counts."""
AGGREGATIONS: Final = ("sum", "avg", "max", "min", "topk", "bottomk", "limitk", "limit_ratio")

_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`|#[^\n]*')
_TEMPLATE: Final = re.compile(r"\{\{\s*\.window\s*\}\}")
_RANGE: Final = re.compile(r"\[\s*" + re.escape(WINDOW) + r"\s*([\]:])")
_PART: Final = re.compile(r"[(\[{+\-*/%^<>=!]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)


def read_query(text: str) -> Query:
    """Check a query, and say how it counts.

    Args:
        text: as the user wrote it.

    Returns:
        The query with `{{.window}}` in each of its ranges, and whether it is a rate.

    Raises:
        ExpressionError: Prometheus would refuse it, or it cannot be counted over any window.
    """
    text = _normalised(text)
    _bound(text)
    tree = _parsed(text)
    counter = _counter(tree)
    if counter is not None:
        return Query(f"sum(increase({counter}[{WINDOW}]))", per_second=False)
    names = [_ranged(call) for call in _outermost(tree)]
    if not names:
        raise ExpressionError(f"it counts nothing over a window; allowed: {ALLOWED}")
    _parsed(f"sum(\n{text}\n)")
    whole = _bare(tree)
    if isinstance(whole, promql.BinaryExpr) and str(whole.op) == "/" and _counts(whole.rhs):
        raise ExpressionError(
            "it divides events by events: that is a ratio, not a count; allowed: a query for the"
            " total and one for the good or bad events"
        )
    if all(name in RATES for name in names):
        return Query(text, per_second=True)
    if any(name in RATES for name in names):
        raise ExpressionError(
            f"it mixes {' and '.join(dict.fromkeys(names))}: events and events per second cannot be"
            f" added; allowed: {ALLOWED}"
        )
    return Query(text, per_second=False)


def check(text: str) -> None:
    """Check the syntax and types of any PromQL expression.

    Raises:
        ExpressionError: Prometheus would refuse it.
    """
    _parsed(text)


def _normalised(text: str) -> str:
    """The window's template as we write it, and raw strings (which the parser reads otherwise than
    Prometheus does) in double quotes."""

    def in_quotes(found: re.Match[str]) -> str:
        return quoted(found[0][1:-1]) if found[0].startswith("`") else found[0]

    return _QUOTED.sub(in_quotes, _TEMPLATE.sub(WINDOW, text.strip()))


def _bound(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"a query of {len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}"
        )
    strings = "".join(each for each in _QUOTED.findall(text) if not each.startswith("#"))
    bare = _RANGE.sub(r"[0s\1", _QUOTED.sub('""', text))
    if WINDOW in strings or WINDOW in bare:
        raise ExpressionError(f"{WINDOW} outside a range; allowed: [{WINDOW}] or [{WINDOW}:1m]")
    if "@" in bare:
        raise ExpressionError("@ counts the events of one instant again and again; allowed: no @")
    parts = len(_PART.findall(bare))
    if parts > MAX_PARTS:
        raise ExpressionError(
            f"a query with {parts:,} brackets and operators; allowed: at most {MAX_PARTS}"
        )


def _parsed(text: str) -> promql.Expr:
    try:
        return promql.parse(text.replace(WINDOW, f"{_PLACEHOLDER_S}s"))
    except (ValueError, RecursionError) as error:
        raise ExpressionError(f"Prometheus would refuse it: {error}") from error


def _counter(tree: promql.Expr) -> str | None:
    """The selector, where the query is one, or the plain sum of one."""
    if isinstance(tree, promql.AggregateExpr) and str(tree.prettify()).startswith("sum("):
        tree = _bare(tree.expr)
    if isinstance(tree, promql.VectorSelector) and tree.offset is None and tree.at is None:
        written = str(tree.prettify())
        return written.removesuffix("{}")
    return None


def _outermost(tree: promql.Expr) -> Iterator[promql.Call]:
    """The calls that take a range, but not those inside another's subquery.

    Raises:
        ExpressionError: a range outside a call: a range is no value that can be counted.
    """
    match tree:
        case promql.Call():
            if any(isinstance(_bare(each), _RANGES) for each in tree.args):
                yield tree
                return
            for each in tree.args:
                inside = list(_outermost(each))
                if inside and tree.func.name not in AROUND:
                    raise ExpressionError(
                        f"{tree.func.name}() of counts is no count; allowed: {', '.join(AROUND)}"
                    )
                yield from inside
        case promql.BinaryExpr():
            yield from _outermost(tree.lhs)
            yield from _outermost(tree.rhs)
        case promql.AggregateExpr():
            inside = list(_outermost(tree.expr))
            if inside and str(tree.op) not in AGGREGATIONS:
                raise ExpressionError(
                    f"{tree.op}() of counts is no count; allowed: {', '.join(AGGREGATIONS)}"
                )
            yield from inside
        case promql.ParenExpr() | promql.UnaryExpr():
            yield from _outermost(tree.expr)
        case promql.MatrixSelector() | promql.SubqueryExpr():
            raise ExpressionError(f"a range that no function counts; allowed: {ALLOWED}")


def _counts(tree: promql.Expr) -> bool:
    return any(True for _ in _outermost(tree))


_RANGES: Final = (promql.MatrixSelector, promql.SubqueryExpr)


def _ranged(call: promql.Call) -> str:
    """The name of a call over the window."""
    name = str(call.func.name)
    if name not in (*RATES, *COUNTS):
        raise ExpressionError(f"{name}() does not count events; allowed: {ALLOWED}")
    for each in map(_bare, call.args):
        if isinstance(each, _RANGES) and each.range != _PLACEHOLDER:
            raise ExpressionError(
                f"{name}() looks back {each.range} (h:mm:ss) whatever the window is;"
                f" allowed: {ALLOWED}"
            )
    return name


def _bare(tree: promql.Expr) -> promql.Expr:
    while isinstance(tree, promql.ParenExpr):
        tree = tree.expr
    return tree
