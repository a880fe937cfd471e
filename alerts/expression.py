"""The expression language of `where` and `good`: its parser and its syntax tree.

    ttft_s <= 0.5 and tpot_s <= 0.05
    route == "/v1/chat/completions" and not (tenant in ("probe", "test") or tenant is unknown)

The grammar, in EBNF:

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | comparison
    comparison  = field ("<" | "<=" | ">" | ">=" | "==" | "!=") literal
                | field ["not"] "in" "(" literal { "," literal } ")"
                | field "is" ["not"] "unknown"
    literal     = number | text in quotes | "true" | "false"

An expression can only compare fields with constants; it is never executed as code.
`alerts.evaluation.request_verdicts` defines the semantics.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from alerts.errors import ExpressionError, shown

MAX_CHARACTERS: Final = 2_000
MAX_DEPTH: Final = 20

Literal = float | int | str | bool

ORDERED: Final = ("<", "<=", ">", ">=")
EQUALITY: Final = ("==", "!=")


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A comparison with a constant. `written` is the constant as the user wrote it."""

    field: str
    operator: str
    value: Literal
    written: str


@dataclass(frozen=True, slots=True)
class IsUnknown:
    """A test whether a field is unknown."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction."""

    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction."""

    operands: tuple["Expression", ...]


Expression = FieldComparison | IsUnknown | Not | And | Or


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The fields that an expression may use, and the values of each field.

    Args:
        choices: the values of each field that has a fixed set of values.
        why_not: for each field that a user may expect, why it is not allowed here.
    """

    kinds: Mapping[str, type]
    choices: Mapping[str, tuple[str, ...]]
    why_not: Mapping[str, str]


def parse(text: str, vocabulary: Vocabulary) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: the expression is malformed, or uses a field or value outside the
            vocabulary.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"an expression of {len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}"
        )
    return _Parser(list(_tokens(text)), vocabulary).whole()


def render(expression: Expression) -> str:
    """The expression as text that `parse` can read."""
    match expression:
        case FieldComparison(field, operator, _, written):
            return f"{field} {operator} {written}"
        case IsUnknown(field):
            return f"{field} is unknown"
        case Not(operand):
            return f"not ({render(operand)})"
        case And(operands):
            return " and ".join(map(_grouped, operands))
        case Or(operands):
            return " or ".join(map(_grouped, operands))


def _grouped(expression: Expression) -> str:
    text = render(expression)
    return f"({text})" if isinstance(expression, And | Or) else text


def comparisons(expression: Expression) -> Iterator[FieldComparison | IsUnknown]:
    """Yield every comparison in the expression, from left to right."""
    match expression:
        case Not(operand):
            yield from comparisons(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from comparisons(operand)
        case _:
            yield expression


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of a conjunction. Return any other expression as the only operand."""
    return expression.operands if isinstance(expression, And) else (expression,)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?![A-Za-z0-9_.]))
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<text>"(?:[^"\\\x00-\x1f]|\\["\\])*"|'(?:[^'\\\x00-\x1f]|\\['\\])*')
      |(?P<sign><=|>=|==|!=|<|>|\(|\)|,)""",
    re.VERBOSE,
)
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "unknown", "true", "false"})


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            hint = " (write == to compare)" if text[place] == "=" else ""
            raise ExpressionError(
                f"{shown(text[place : place + 20])} at character {place + 1} is not part of an"
                f" expression{hint}"
            )
        kind = match.lastgroup or ""
        if kind == "name" and match[0] in _WORDS:
            kind = "word"
        if kind != "space":
            yield _Token(kind, match[0], place + 1)
        place = match.end()
    yield _Token("end", "", len(text) + 1)


class _Parser:
    def __init__(self, tokens: list[_Token], vocabulary: Vocabulary) -> None:
        self._tokens = tokens
        self._at = 0
        self._vocabulary = vocabulary

    def whole(self) -> Expression:
        expression = self._either(0)
        if self._next.kind != "end":
            raise self._unexpected('"and", "or", or the end')
        return expression

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _taken(self, text: str) -> bool:
        # Quotes are kept, so that the string "and" differs from the keyword `and`.
        if self._next.text == text and self._next.kind in ("word", "sign"):
            self._at += 1
            return True
        return False

    def _either(self, depth: int) -> Expression:
        operands = [self._conjunction(depth)]
        while self._taken("or"):
            operands.append(self._conjunction(depth))
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _conjunction(self, depth: int) -> Expression:
        operands = [self._negated(depth)]
        while self._taken("and"):
            operands.append(self._negated(depth))
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _negated(self, depth: int) -> Expression:
        if depth >= MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        if self._taken("not"):
            return Not(self._negated(depth + 1))
        if self._taken("("):
            inner = self._either(depth + 1)
            if not self._taken(")"):
                raise self._unexpected('"and", "or", or a closing )')
            return inner
        return self._comparison()

    def _comparison(self) -> Expression:
        if self._next.kind != "name":
            raise self._unexpected(f"a field: {', '.join(self._vocabulary.kinds)}")
        field = self._known_field(self._take())
        if self._taken("is"):
            negated = self._taken("not")
            if not self._taken("unknown"):
                raise self._unexpected("unknown")
            return Not(IsUnknown(field)) if negated else IsUnknown(field)
        negated = self._taken("not")
        if self._taken("in"):
            within = self._value_list(field)
            return Not(within) if negated else within
        ordered = self._vocabulary.kinds[field] in (int, float)
        allowed = (*ORDERED, *EQUALITY) if ordered else EQUALITY
        if negated or self._next.text not in allowed or self._next.kind != "sign":
            raise self._unexpected(f"{', '.join(allowed)}, in, or is, after {field}")
        operator = self._take().text
        value, written = self._literal(field)
        return FieldComparison(field, operator, value, written)

    def _value_list(self, field: str) -> Expression:
        if not self._taken("("):
            raise self._unexpected("( after in")
        found = [FieldComparison(field, "==", *self._literal(field))]
        while self._taken(","):
            found.append(FieldComparison(field, "==", *self._literal(field)))
        if not self._taken(")"):
            raise self._unexpected("a comma or a closing )")
        return found[0] if len(found) == 1 else Or(tuple(found))

    def _known_field(self, token: _Token) -> str:
        if token.text in self._vocabulary.kinds:
            return token.text
        why = self._vocabulary.why_not.get(token.text)
        raise ExpressionError(
            f"{shown(token.text)} at character {token.place} {why or 'is not a field'};"
            f" allowed: {', '.join(self._vocabulary.kinds)}"
        )

    def _literal(self, field: str) -> tuple[Literal, str]:
        token = self._take()
        kind = self._vocabulary.kinds[field]
        if kind is str and token.kind == "text":
            text = re.sub(r"\\(.)", r"\1", token.text[1:-1])
            choices = self._vocabulary.choices.get(field)
            if choices is not None and text not in choices:
                raise ExpressionError(
                    f"{field} has no value {shown(text)}; allowed: {', '.join(choices)}"
                )
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            return text, f'"{escaped}"'
        if kind is bool and token.kind == "word" and token.text in ("true", "false"):
            return token.text == "true", token.text
        if kind is int and token.kind == "number" and re.fullmatch(r"[0-9]{1,18}", token.text):
            return int(token.text), token.text
        if kind is float and token.kind == "number":
            # Measured values are doubles. The double 0.1 is slightly above the decimal 0.1, so it
            # would not meet an exact `<= 0.1`.
            value = float(token.text)
            if value != float("inf"):
                return value, token.text
        wanted = {
            str: 'a text in quotes, as in "chat"',
            bool: "true or false",
            int: "a whole number",
            float: "a number, in seconds where the field ends in _s",
        }
        self._at -= 1
        raise self._unexpected(f"{wanted[kind]}, for {field}")

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._next
        found = "the end" if token.kind == "end" else shown(token.text)
        return ExpressionError(f"{found} at character {token.place}; allowed here: {wanted}")
