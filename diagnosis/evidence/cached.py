"""A decorator that caches the results of a function in each case. Pure."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from diagnosis.growth.case import DiagnosisCase

_Found = TypeVar("_Found")


def cached_per_case(find: Callable[[DiagnosisCase], _Found]) -> Callable[[DiagnosisCase], _Found]:
    """Return a function that calls `find` once for each case and caches its result."""

    @wraps(find)
    def found(case: DiagnosisCase) -> _Found:
        if find not in case.cache:
            case.cache[find] = find(case)
        result: _Found = case.cache[find]
        return result

    return found
