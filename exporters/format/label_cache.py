"""A cache of values that depend on a metric's labels only."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Labels = tuple[str, ...]
"""Label values in the order of the series' labels."""

MAX_ENTRIES: Final = 1 << 15
"""Entries per metric, several times the number in one scrape."""

_Made = TypeVar("_Made")


class LabelCache(dict[Labels, _Made], Generic[_Made]):
    """Values by labels, created when first needed.

    When it is full, all entries are dropped; the next scrape creates those still in use.
    """

    def __init__(self, make: Callable[[Labels], _Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: Labels) -> _Made:
        if len(self) >= MAX_ENTRIES:
            self.clear()
        made = self[labels] = self._make(labels)
        return made
