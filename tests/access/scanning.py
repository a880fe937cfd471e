"""Searches an answer for values that a role must not see."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.access.fleet import HIDDEN_MODEL, HIDDEN_REPLICA, MODEL, TENANTS, Fleet

ALLOWED: Final = {
    "mine": ({"mineco"}, {MODEL, HIDDEN_MODEL}, True),
    "mine-without-costs": ({"mineco"}, {MODEL, HIDDEN_MODEL}, False),
    "mine-and-model": ({"mineco"}, {MODEL}, False),
    "model": (set(TENANTS.values()), {MODEL}, True),
    "operator": (set(TENANTS.values()), {MODEL, HIDDEN_MODEL}, False),
    "sre": (set(TENANTS.values()), {MODEL, HIDDEN_MODEL}, True),
}
"""The visible tenants and models of each role, and whether it sees costs."""
_DOLLARS: Final = re.compile(r"(?<![\\\w{])\$\s?\d")
_BLOB: Final = re.compile(r"\"bdata\": ?\"[^\"]*\"")


def forbidden(fleet: Fleet, role: str) -> set[str]:
    tenants, models, _ = ALLOWED[role]
    found: set[str] = set()
    for tenant in set(TENANTS.values()) - tenants:
        found |= {tenant, *fleet.ids_of(tenant=tenant)}
    if HIDDEN_MODEL not in models:
        found |= {HIDDEN_MODEL, HIDDEN_REPLICA, *fleet.ids_of(model=HIDDEN_MODEL)}
    return found


def leaks(fleet: Fleet, role: str, text: str, asked: str = "") -> list[str]:
    """The forbidden values in an answer. It may repeat values of the question (`asked`)."""
    text = _BLOB.sub("", text)
    found = [each for each in forbidden(fleet, role) if each in text and each not in asked]
    if not ALLOWED[role][2]:
        found += _DOLLARS.findall(text)
        with_dollars = (json.loads(line) for line in text.splitlines() if _is_json(line))
        found += [name for each in with_dollars for name in _dollars(each)]
    return found


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _dollars(value: Any) -> Iterator[str]:
    """Yield the names of JSON members with an amount in dollars."""
    if isinstance(value, dict):
        for name, each in value.items():
            if "usd" in name and isinstance(each, float):
                yield name
            yield from _dollars(each)
    elif isinstance(value, list):
        for each in value:
            yield from _dollars(each)
