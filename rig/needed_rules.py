"""Find the Prometheus rules that a check with promtool needs.

The other rules are left out, because promtool is slow: a subquery over 30 days has 43,200 steps.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_ALERTS = re.compile(r"\bALERTS\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def needed(rules: Iterable[Mapping[str, Any]], exprs: Iterable[str]) -> list[dict[str, Any]]:
    """The rules on which these expressions depend, in the given order, without annotations.

    An expression depends on the recording rules that it names. It also depends on the alerts that
    its selectors of `ALERTS` match. `ALERTS` without braces is not supported.
    """
    rest, kept = list(enumerate(rules)), []
    texts = list(exprs)
    while texts:
        text = texts.pop()
        names = set(_NAME.findall(text))
        selectors = [_MATCHER.findall(each) for each in _ALERTS.findall(text)]
        found = [
            (place, rule)
            for place, rule in rest
            if rule.get("record") in names or any(_matches(rule, each) for each in selectors)
        ]
        rest = [each for each in rest if each not in found]
        kept += found
        texts += [rule["expr"] for _, rule in found]
    return [
        {key: value for key, value in rule.items() if key != "annotations"}
        for _, rule in sorted(kept, key=lambda each: each[0])
    ]


def _matches(rule: Mapping[str, Any], matchers: Iterable[tuple[str, str, str]]) -> bool:
    """Whether a selector's matchers can match alerts of a rule."""
    if "alert" not in rule:
        return False
    labels = {**rule.get("labels", {}), "alertname": rule["alert"]}
    for name, operator, value in matchers:
        own = labels.get(name)
        if own is None or "{{" in own:
            continue
        equal = re.fullmatch(value, own) is not None if "~" in operator else value == own
        if equal is operator.startswith("!"):
            return False
    return True
