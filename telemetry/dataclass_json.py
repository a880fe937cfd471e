"""Convert frozen dataclasses to JSON text and back. Pure.

`read` rejects every deviation, because the text may be from a damaged database or a different
version of Tailspan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Read = TypeVar("Read")


def write(value: Any) -> str:
    """The dataclass as JSON text.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(asdict(value), allow_nan=False, default=_number)


def read(kind: type[Read], text: str) -> Read:
    """The dataclass that `write` wrote.

    Args:
        kind: the dataclass. Its fields may be texts, numbers, booleans, text enums and dataclasses.
            Sequences, tuples, unions and mappings of these types are also allowed. Keys of mappings
            must be texts.

    Raises:
        ValueError: the text is not JSON, or a field is missing, unknown or of a wrong type.
    """
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    value: Read = _value(kind, found, kind.__name__)
    return value


def _number(value: Any) -> Any:
    return value.item()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"the JSON contains {name}, which is not a number")


def _value(kind: Any, found: Any, name: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _of_union(get_args(kind), found, name)
    if origin is not None and issubclass(origin, tuple):
        return _tuple(get_args(kind), found, name)
    if origin is not None and issubclass(origin, Mapping):
        _, of = get_args(kind)
        items = _checked(found, dict, name).items()
        return {key: _value(of, each, f"{name}.{key}") for key, each in items}
    if origin is not None and issubclass(origin, Sequence):
        return _tuple((*get_args(kind), ...), found, name)
    if is_dataclass(kind):
        return _dataclass(kind, found, name)
    if issubclass(kind, StrEnum):
        return kind(_checked(found, str, name))
    if kind is float and type(found) is int:
        return float(found)
    return _checked(found, kind, name)


def _of_union(kinds: Sequence[Any], found: Any, name: str) -> Any:
    if found is None and NoneType in kinds:
        return None
    possible = [each for each in kinds if each is not NoneType]
    for each in possible[:-1]:
        try:
            return _value(each, found, name)
        except ValueError:
            continue
    return _value(possible[-1], found, name)


def _tuple(kinds: Sequence[Any], found: Any, name: str) -> tuple[Any, ...]:
    values = _checked(found, list, name)
    if kinds[-1] is ...:
        kinds = [kinds[0]] * len(values)
    if len(kinds) != len(values):
        raise ValueError(f"{name} has {len(values)} values; allowed: {len(kinds)}")
    return tuple(
        _value(kind, each, f"{name}[{place}]")
        for place, (kind, each) in enumerate(zip(kinds, values, strict=True))
    )


def _dataclass(kind: Any, found: Any, name: str) -> Any:
    given = _checked(found, dict, name)
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}
    if unknown := sorted(given.keys() - known.keys()):
        raise ValueError(f"{name}.{unknown[0][:80]} is not a field of {kind.__name__}")
    needed = (
        each.name
        for each in known.values()
        if each.default is MISSING and each.default_factory is MISSING
    )
    for each in needed:
        if each not in given:
            raise ValueError(f"{name}.{each} is missing")
    return kind(**{key: _value(hints[key], value, f"{name}.{key}") for key, value in given.items()})


def _checked(found: Any, kind: type[Any], name: str) -> Any:
    if type(found) is not kind:
        raise ValueError(
            f"{name} is {json.dumps(found)[:80]}, of type {type(found).__name__}; allowed:"
            f" {kind.__name__}"
        )
    return found
