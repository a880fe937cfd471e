"""Cache values that depend only on a metric's labels."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Labels = tuple[str, ...]

MAX_ENTRIES: Final = 1 << 15
"""Maximum number of entries per metric. One scrape uses only a part of them."""

_Made = TypeVar("_Made")


class LabelCache(dict[Labels, _Made], Generic[_Made]):
    """Maps labels to values, which are created on first use. A full cache is cleared."""

    def __init__(self, make: Callable[[Labels], _Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: Labels) -> _Made:
        if len(self) >= MAX_ENTRIES:
            self.clear()
        made = self[labels] = self._make(labels)
        return made
