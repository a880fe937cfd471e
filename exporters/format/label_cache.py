"""What is made once of a metric's labels and kept from scrape to scrape."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Labels = tuple[str, ...]
"""Label values, in the order of the series' labels."""

MOST: Final = 1 << 15
"""Of one metric: some times what is told at once."""

_Made = TypeVar("_Made")


class Kept(dict[Labels, _Made], Generic[_Made]):
    """By labels; what is not there yet is made.

    Labels come and go: when there are too many, all are forgotten, and those of now are there
    again after the next scrape.
    """

    def __init__(self, make: Callable[[Labels], _Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: Labels) -> _Made:
        if len(self) >= MOST:
            self.clear()
        made = self[labels] = self._make(labels)
        return made
