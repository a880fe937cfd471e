"""Divide an objective into groups: each combination of values of its `by` fields has its own error
budget.

This module is pure. A limited number of groups have a *slot*, which means that they are counted
separately (`alerts.evaluation.group_slots`). All other requests form the group `other`. As in
Prometheus, the empty string stands for an unknown value.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.expression import (
    And,
    Expression,
    FieldComparison,
    IsUnknown,
    Literal,
    Not,
    Or,
    conjuncts,
)
from alerts.fields import PROBE_WHERE, WHERE

Group = tuple[str, ...]
"""A group: one value for each field of `by`."""

OTHER: Final = "other"
"""The value of every field in the group `other`."""
SLOTS: Final = 50
"""Maximum number of groups, besides `other`. The rules record about 45 series per group. With three
days of counts, an evaluation of 50 groups took 0.4 s on two cores."""


def other(by: Sequence[str]) -> Group:
    """The group `other`."""
    return (OTHER,) * len(by)


def key(group: Group) -> str:
    """The group as a text that any database can store."""
    return (
        f".{urlsafe_b64encode(json.dumps(group, ensure_ascii=False).encode()).decode().rstrip('=')}"
    )


LONGEST_KEY: Final = 2_000
"""Maximum length of a key in bytes. PostgreSQL indexes at most 2,704 bytes. A value of 256
characters needs at most 1,400 bytes."""


def read_key(text: str) -> Group:
    """The group of a key."""
    return tuple(json.loads(urlsafe_b64decode(f"{text[1:]}===")))


def name(objective: str, by: Sequence[str], group: Group) -> str:
    """An objective's name with its group: `chat{tenant="acme"}`, printable."""
    labels = ",".join(
        f"{field}={json.dumps(value, ensure_ascii=not value.isprintable())}"
        for field, value in zip(by, group, strict=True)
    )
    return f"{objective}{{{labels}}}"


def base(name: str) -> str:
    """The name of an objective without its group."""
    return name.partition("{")[0]


def narrowed(
    where: Expression | None, by: Sequence[str], groups: Sequence[Group], group: Group
) -> Expression:
    """Expression that selects one group's requests.

    Args:
        where: selects the requests of all groups; None selects all requests.
        group: a group from `groups`, or `other(by)`.
    """
    if group == other(by):
        separate = [_is(by, each) for each in groups]
        if not separate:
            return where if where is not None else Or((IsUnknown(by[0]), Not(IsUnknown(by[0]))))
        own: Expression = Not(separate[0] if len(separate) == 1 else Or(tuple(separate)))
    else:
        own = _is(by, group)
    return own if where is None else _all([*conjuncts(where), *conjuncts(own)])


def _is(by: Sequence[str], group: Group) -> Expression:
    each = (_field_equals(field, value) for field, value in zip(by, group, strict=True))
    return _all([leaf for one in each for leaf in conjuncts(one)])


def _all(operands: list[Expression]) -> Expression:
    return operands[0] if len(operands) == 1 else And(tuple(operands))


def _field_equals(field: str, value: str) -> Expression:
    """An expression that is never unknown, so that it can be negated. "" stands for an unknown
    field."""
    if not value:
        return IsUnknown(field)
    return And(
        (
            Not(IsUnknown(field)),
            FieldComparison(field, "==", _literal(field, value), json.dumps(value)),
        )
    )


def _literal(field: str, value: str) -> Literal:
    kind = WHERE.kinds.get(field) or PROBE_WHERE.kinds[field]
    return value == "true" if kind is bool else kind(value)


def groups_in(table: pa.Table, by: Sequence[str]) -> Iterable[Group]:
    """The group of each request. `table` has the fields of `by`."""
    columns = [pc.fill_null(pc.cast(table[field], pa.string()), "").to_pylist() for field in by]
    return zip(*columns, strict=True)


def positions_in(table: pa.Table, by: Sequence[str], groups: Sequence[Group]) -> np.ndarray:
    """Each group's position in `groups`, from 1, or 0 for `other` (n,) int64."""
    positions = {group: position for position, group in enumerate(groups, 1)}
    return np.fromiter(
        (positions.get(each, 0) for each in groups_in(table, by)), np.int64, table.num_rows
    )
