"""Shorten an answer for a language model. Numbers are rounded, and the longest lists are halved.

The last element of a shortened list states how many elements were omitted.
"""

import json
from collections.abc import Iterator
from math import floor, isfinite, log10
from typing import Any, Final

MAX_CHARACTERS: Final = 20_000
"""Maximum characters of an answer, about 8,000 tokens. JSON with numbers has about 2.5 characters
per token."""
DIGITS: Final = 6
"""Number of significant digits. With fewer digits, an attainment of 99.996 % would be rounded to
100 %."""
OMITTED: Final = "omitted"

_List = list[Any]


def shortened(value: object, most: int = MAX_CHARACTERS) -> Any:
    """A copy of a JSON value with at most `most` characters. It is longer if halving lists is not
    enough."""
    copy = _rounded(value)
    while len(dumped(copy)) > most:
        longest = max(_lists(copy), key=lambda each: len(dumped(each)), default=None)
        if longest is None:
            break
        _halve_list(longest)
    return copy


def dumped(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _rounded(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float) and value and isfinite(value):
        return round(value, max(0, DIGITS - 1 - floor(log10(abs(value)))))
    return value


def _lists(value: object) -> Iterator[_List]:
    if isinstance(value, list):
        if len(value) - _has_note(value) > 1:
            yield value
        for each in value:
            yield from _lists(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _lists(each)


def _halve_list(longest: _List) -> None:
    before = 0
    if _has_note(longest):
        before = longest.pop()[OMITTED]
    kept = len(longest) // 2
    omitted = before + len(longest) - kept
    del longest[kept:]
    longest.append({OMITTED: omitted})


def _has_note(value: _List) -> bool:
    return bool(value) and isinstance(value[-1], dict) and value[-1].keys() == {OMITTED}
