"""A cache of the results that several detectors use.

Pure: the cache is part of the case.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from diagnosis.growth.case import Case

_Found = TypeVar("_Found")


def cached_per_case(find: Callable[[Case], _Found]) -> Callable[[Case], _Found]:
    """Wrap a function of a case, so that it runs only once for each case."""

    @wraps(find)
    def found(case: Case) -> _Found:
        if find not in case.cache:
            case.cache[find] = find(case)
        result: _Found = case.cache[find]
        return result

    return found
