"""Label matchers that `tailspan slo rules --selector` adds to every raw series of Tailspan and
vLLM.

Recorded series (`slo:…`) and users' own queries already have matchers.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import promql_parser as promql

from alerts import vocabulary
from alerts.errors import ExpressionError, shown
from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, quoted

ALLOWED: Final = 'matchers as within {…} of a selector: env="prod",region=~"eu-.*"'
MAX_CHARACTERS: Final = 1_000
"""A rules file repeats the matchers about 40 times per objective."""

SET_BY_RULES: Final = frozenset({vocabulary.SLO, vocabulary.REASON, "outcome", "result"})
"""Labels that the rules already match. With a second matcher, an expression would select nothing,
and no alert would fire."""

_OPERATORS: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_OWN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?<![a-zA-Z0-9_:])((?:tailspan_|vllm:)[a-zA-Z0-9_:]+)(\{\}?)?'
)
"""Matches a string, or a raw series. Recorded series have a prefix."""


def read_selector(text: str) -> str:
    """The label matchers of a text in a normalised form.

    Raises:
        ExpressionError: the text contains something other than matchers.
    """
    wrong = f"{shown(text)}; allowed: {ALLOWED}"
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"{len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}")
    try:
        tree = promql.parse(f"x{{{text}}}")
    except (ValueError, RecursionError) as error:
        raise ExpressionError(f"{wrong} ({error})") from error
    if not isinstance(tree, promql.VectorSelector) or tree.name != "x":
        raise ExpressionError(wrong)
    matchers = tree.matchers.matchers
    if not matchers or tree.matchers.or_matchers or tree.offset is not None or tree.at is not None:
        raise ExpressionError(wrong)
    written = []
    for each in matchers:
        if not _LABEL.fullmatch(each.name) or each.name == "__name__":
            raise ExpressionError(f"{wrong} (a matcher on {shown(each.name)} is not allowed)")
        if each.name in SET_BY_RULES:
            raise ExpressionError(f"{wrong} (the rules already match {each.name})")
        if not each.value.isprintable():
            raise ExpressionError(f"{wrong} (the value of {each.name} is not printable)")
        operator = _OPERATORS[str(each.op).rpartition(".")[2]]
        written.append(f"{each.name}{operator}{quoted(each.value)}")
    return ",".join(sorted(written))


def matched(expression: str, selector: str) -> str:
    """An expression with the matchers added to each raw series."""

    def more(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        match found[2]:
            case "{":
                return f"{found[1]}{{{selector},"
            case _:
                return f"{found[1]}{{{selector}}}"

    return _OWN.sub(more, expression) if selector else expression


def matched_groups(groups: Sequence[RuleGroup], selector: str) -> list[RuleGroup]:
    """The rule groups with the matchers added to every rule."""

    def rule(each: RecordingRule | AlertingRule) -> RecordingRule | AlertingRule:
        return replace(each, expr=matched(each.expr, selector))

    return [replace(group, rules=[rule(each) for each in group.rules]) for group in groups]
