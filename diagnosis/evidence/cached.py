"""What several detectors ask for is found out once for a case.

Pure: kept in the case itself.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from diagnosis.growth.case import Case

_Found = TypeVar("_Found")


def cached_per_case(find: Callable[[Case], _Found]) -> Callable[[Case], _Found]:
    """Found out once for a case, however many detectors ask."""

    @wraps(find)
    def found(case: Case) -> _Found:
        if find not in case.cache:
            case.cache[find] = find(case)
        result: _Found = case.cache[find]
        return result

    return found
