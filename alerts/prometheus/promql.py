"""Check a user's PromQL query, and convert it to a count of events over a window.

A query is a counter or gauge (`name{…}`), a sum of counters or gauges, or an expression with the
range `[{{.window}}]`. promql-parser checks grammar and types.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import promql_parser as promql

from alerts.errors import ExpressionError
from alerts.objectives import EventQuery
from alerts.prometheus.rulefile import quoted

WINDOW: Final = "{{.window}}"
MAX_CHARACTERS: Final = 10_000
MAX_PARTS: Final = 150
"""The recursive parser takes 0.3 s for 150 nested brackets and crashes at a few thousand."""

RATES: Final = ("rate",)
COUNTS: Final = ("increase", "sum_over_time", "count_over_time")

ALLOWED: Final = (
    "a counter (name{…}), its sum, or an expression in which every outermost range is"
    f" [{WINDOW}], all inside rate() or all inside {', '.join(COUNTS)}"
)

GAUGES_ALLOWED: Final = (
    "a gauge (name{…}), its sum, its count, or an expression in which every outermost range is"
    f" [{WINDOW}], all inside rate() or all inside {', '.join(COUNTS)}"
)

RATIOS: Final = ("avg_over_time", *COUNTS)
RATIO_ALLOWED: Final = (
    f"one series without labels, such as sum(rate(a[{WINDOW}])) / sum(rate(b[{WINDOW}])), in which"
    f" every metric has the range [{WINDOW}], all inside rate() or all inside {', '.join(RATIOS)}"
)

_PLACEHOLDER_S: Final = 7919
"""Replaces `{{.window}}` while parsing. It is a prime that a query is unlikely to contain."""
_PLACEHOLDER: Final = timedelta(seconds=_PLACEHOLDER_S)

ELEMENTWISE: Final = ("abs", "ceil", "clamp", "clamp_max", "clamp_min", "floor", "round")
"""Functions that transform each sample separately and preserve the series."""
AROUND: Final = (
    *ELEMENTWISE,
    *("histogram_count", "histogram_fraction", "label_join", "label_replace", "scalar", "vector"),
)
"""Functions around counts whose result can be a count."""
AGGREGATIONS: Final = ("sum", "avg", "max", "min", "topk", "bottomk", "limitk", "limit_ratio")

_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`|#[^\n]*')
_TEMPLATE: Final = re.compile(r"\{\{\s*\.window\s*\}\}")
_RANGE: Final = re.compile(r"\[\s*" + re.escape(WINDOW) + r"\s*([\]:])")
_PART: Final = re.compile(r"[(\[{+\-*/%^<>=!]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)


def read_query(text: str, *, gauges: bool = False, by: tuple[str, ...] = ()) -> EventQuery:
    """Check a query that counts events, and normalise it.

    Args:
        gauges: True to add up the samples of gauges.
        by: labels that the query must preserve. They are added to a sum or a count of a plain
            selector.

    Raises:
        ExpressionError: Prometheus would reject the query, or the query does not count events over
            a window.
    """
    text = _normalised(text)
    _bound(text)
    tree = _parsed(text)
    allowed = GAUGES_ALLOWED if gauges else ALLOWED
    plain = _plain(tree)
    if plain is not None:
        aggregation, selector = plain
        functions = _OVER_TIME if gauges else {"sum": "increase"}
        if aggregation not in functions:
            raise ExpressionError(
                f"{aggregation} of a counter does not count events; allowed: {allowed}"
            )
        summed = f"sum by ({', '.join(by)}) " if by else "sum"
        return EventQuery(
            f"{summed}({functions[aggregation]}({selector}[{WINDOW}]))", per_second=False
        )
    if (losing := _label_removing_aggregation(tree, by)) is not None:
        raise ExpressionError(
            f"{losing} removes labels of by; allowed: sum by ({', '.join(by)}) (…), or no sum"
        )
    names = [_ranged(call, COUNTS, allowed) for call in _outermost(tree)]
    if not names:
        raise ExpressionError(f"it does not count events over a window; allowed: {allowed}")
    _parsed(f"sum(\n{text}\n)")
    whole = _without_parentheses(tree)
    if isinstance(whole, promql.BinaryExpr) and str(whole.op) == "/" and _counts(whole.rhs):
        raise ExpressionError(
            "it divides events by events, which gives a ratio and not a count; allowed: one query"
            " for the total, and one for the good or bad events"
        )
    return EventQuery(text, per_second=_per_second(names, allowed))


def read_ratio(text: str) -> EventQuery:
    """Check that a query returns a ratio as a single series, and that every range is the window.

    If a query returned several series, the mean of their ratios would usually be wrong.

    Raises:
        ExpressionError: Prometheus would reject the query, or the query does not return such a
            ratio.
    """
    text = _normalised(text)
    _bound(text)
    tree = _parsed(text)
    names = [_ranged(call, RATIOS, RATIO_ALLOWED) for call in _outermost(tree, counts=False)]
    if not names:
        raise ExpressionError(f"it has no range over the window; allowed: {RATIO_ALLOWED}")
    if (instant := _instant(tree)) is not None:
        raise ExpressionError(
            f"{instant} is the value at an instant, not over the window; allowed: {RATIO_ALLOWED}"
        )
    if not _single(tree):
        raise ExpressionError(
            "it may return several series, and the mean of their ratios is not the total ratio;"
            f" allowed: {RATIO_ALLOWED}"
        )
    _per_second(names, RATIO_ALLOWED)
    _parsed(f"sum(\n{text}\n)")
    return EventQuery(text, per_second=False)


def _per_second(names: Sequence[str], allowed: str) -> bool:
    if all(name in RATES for name in names):
        return True
    if any(name in RATES for name in names):
        raise ExpressionError(
            f"it mixes {' and '.join(dict.fromkeys(names))}: events and events per second cannot be"
            f" added; allowed: {allowed}"
        )
    return False


def check(text: str) -> None:
    """Check the syntax and types of any PromQL expression.

    Raises:
        ExpressionError: Prometheus would reject the expression.
    """
    _parsed(text)


def _normalised(text: str) -> str:
    """Normalise a query. Raw strings are converted too, because the parser and Prometheus treat
    them differently."""

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
        raise ExpressionError(
            "@ fixes the instant, so the same events would be counted repeatedly; allowed: no @"
        )
    parts = len(_PART.findall(bare))
    if parts > MAX_PARTS:
        raise ExpressionError(
            f"a query with {parts:,} brackets and operators; allowed: at most {MAX_PARTS}"
        )


def _parsed(text: str) -> promql.Expr:
    try:
        return promql.parse(text.replace(WINDOW, f"{_PLACEHOLDER_S}s"))
    except (ValueError, RecursionError) as error:
        raise ExpressionError(f"Prometheus would reject it: {error}") from error


_OVER_TIME: Final = {"sum": "sum_over_time", "count": "count_over_time"}


def _plain(tree: promql.Expr) -> tuple[str, str] | None:
    """The aggregation (sum or count) and the selector, or None. A bare selector counts as a sum."""
    tree, aggregation = _without_parentheses(tree), "sum"
    if isinstance(tree, promql.AggregateExpr) and str(tree.op) in _OVER_TIME and _ungrouped(tree):
        aggregation = str(tree.op)
        tree = _without_parentheses(tree.expr)
    if isinstance(tree, promql.VectorSelector) and tree.offset is None and tree.at is None:
        written = str(tree.prettify())
        return aggregation, written.removesuffix("{}")
    return None


def _ungrouped(tree: promql.AggregateExpr) -> bool:
    return str(tree.prettify()).startswith(f"{tree.op}(")


def _label_removing_aggregation(tree: promql.Expr, by: tuple[str, ...]) -> str | None:
    """The first aggregation that removes one of these labels, or None."""
    match tree:
        case promql.AggregateExpr() as each:
            found = re.fullmatch(r"(by|without)\s*\((.*)\)", str(each.modifier), re.DOTALL)
            kind = found[1] if found else "by"
            named = {label.strip() for label in found[2].split(",")} if found else set()
            lost = set(by) - named if kind == "by" else set(by) & named
            # These aggregations select series and preserve their labels.
            chosen = str(each.op) in ("topk", "bottomk", "limitk", "limit_ratio")
            return (
                f"{each.op}()"
                if lost and not chosen
                else _label_removing_aggregation(each.expr, by)
            )
        case promql.BinaryExpr():
            return _label_removing_aggregation(tree.lhs, by) or _label_removing_aggregation(
                tree.rhs, by
            )
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _label_removing_aggregation(tree.expr, by)
        case promql.Call():
            return next(
                filter(None, (_label_removing_aggregation(each, by) for each in tree.args)), None
            )
    return None


def _single(tree: promql.Expr) -> bool:
    match _without_parentheses(tree):
        case promql.NumberLiteral():
            return True
        case promql.AggregateExpr() as each:
            return str(each.op) in ("sum", "avg", "max", "min", "count") and _ungrouped(each)
        case promql.BinaryExpr() as each:
            return _single(each.lhs) and _single(each.rhs)
        case promql.UnaryExpr() as each:
            return _single(each.expr)
        case promql.Call() as each:
            if each.func.name in ("vector", "scalar", "time"):
                return True
            return each.func.name in ELEMENTWISE and all(map(_single, each.args))
    return False


def _instant(tree: promql.Expr) -> str | None:
    match tree:
        case promql.VectorSelector():
            return str(tree.prettify())
        case promql.BinaryExpr():
            return _instant(tree.lhs) or _instant(tree.rhs)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return _instant(tree.expr)
        case promql.Call() if not any(
            isinstance(_without_parentheses(each), _RANGES) for each in tree.args
        ):
            return next(filter(None, map(_instant, tree.args)), None)
    return None


def _outermost(tree: promql.Expr, *, counts: bool = True) -> Iterator[promql.Call]:
    """Yield the calls with a range argument that are not inside the subquery of a call.

    Args:
        counts: True to reject functions that do not return counts.

    Raises:
        ExpressionError: a range is not the argument of a function.
    """
    match tree:
        case promql.Call():
            if any(isinstance(_without_parentheses(each), _RANGES) for each in tree.args):
                yield tree
                return
            for each in tree.args:
                inside = list(_outermost(each, counts=counts))
                if counts and inside and tree.func.name not in AROUND:
                    raise ExpressionError(
                        f"the result of {tree.func.name}() is not a number of events; allowed:"
                        f" {', '.join(AROUND)}"
                    )
                yield from inside
        case promql.BinaryExpr():
            yield from _outermost(tree.lhs, counts=counts)
            yield from _outermost(tree.rhs, counts=counts)
        case promql.AggregateExpr():
            inside = list(_outermost(tree.expr, counts=counts))
            if counts and inside and str(tree.op) not in AGGREGATIONS:
                raise ExpressionError(
                    f"the result of {tree.op}() is not a number of events; allowed:"
                    f" {', '.join(AGGREGATIONS)}"
                )
            yield from inside
        case promql.ParenExpr() | promql.UnaryExpr():
            yield from _outermost(tree.expr, counts=counts)
        case promql.MatrixSelector() | promql.SubqueryExpr():
            raise ExpressionError(
                f"a range is not inside a function that counts; allowed: {ALLOWED}"
            )


def _counts(tree: promql.Expr) -> bool:
    return any(True for _ in _outermost(tree))


_RANGES: Final = (promql.MatrixSelector, promql.SubqueryExpr)


def _ranged(call: promql.Call, functions: tuple[str, ...], allowed: str) -> str:
    """Check that the function is allowed, and that its range is the window. Return its name."""
    name = str(call.func.name)
    if name not in (*RATES, *functions):
        raise ExpressionError(f"{name}() does not count events; allowed: {allowed}")
    for each in map(_without_parentheses, call.args):
        if isinstance(each, _RANGES) and each.range != _PLACEHOLDER:
            raise ExpressionError(
                f"{name}() always covers {each.range} (h:mm:ss) instead of the window; allowed:"
                f" {allowed}"
            )
    return name


def _without_parentheses(tree: promql.Expr) -> promql.Expr:
    while isinstance(tree, promql.ParenExpr):
        tree = tree.expr
    return tree
