"""Computes the maximum of any range of a long series. Pure.

The class stores the maximum of each block of `BLOCK` values. So a query over n values reads about n
/ BLOCK maxima.
"""

from array import array

BLOCK = 64


class RangeMax:
    """A series of numbers. New numbers are appended, and the oldest are dropped."""

    def __init__(self) -> None:
        self._values = array("d")
        self._tops = array("d")

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, position: int) -> float:
        return self._values[position]

    def append(self, value: float) -> None:
        """Add the next value."""
        if len(self._values) % BLOCK == 0:
            self._tops.append(value)
        elif value > self._tops[-1]:
            self._tops[-1] = value
        self._values.append(value)

    def forget(self, count: int) -> None:
        """Drop the oldest values. The remaining values are numbered from 0."""
        values = self._values
        del values[:count]
        self._tops = array(
            "d", (max(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK))
        )

    def greatest(self, begin: int, end: int) -> float:
        """The maximum of the values at positions [begin, end), which must not be empty."""
        values = self._values
        first, last = -(-begin // BLOCK), end // BLOCK
        if first >= last:
            return max(values[begin:end])
        return max(
            (
                *self._tops[first:last],
                *values[begin : first * BLOCK],
                *values[last * BLOCK : end],
            )
        )
