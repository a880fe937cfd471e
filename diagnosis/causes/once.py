"""What several detectors ask for is found out once for a case.

Pure: kept in the case itself.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from diagnosis.case import Case

_Found = TypeVar("_Found")


def once(find: Callable[[Case], _Found]) -> Callable[[Case], _Found]:
    """Found out once for a case, however many detectors ask."""

    @wraps(find)
    def found(case: Case) -> _Found:
        if find not in case.known:
            case.known[find] = find(case)
        result: _Found = case.known[find]
        return result

    return found
