"""The greatest value of any stretch of a long series.

Pure. The greatest of every `BLOCK` values is kept beside them, so a question over n values
reads n / BLOCK of those and the ends of its stretch. Adding a value is one comparison.
"""

from array import array

BLOCK = 64


class RangeMax:
    """Values in order, asked by position; the oldest can be forgotten."""

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
        """Drop the oldest values; those that are left are counted from 0 again."""
        values = self._values
        del values[:count]
        self._tops = array(
            "d", (max(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK))
        )

    def greatest(self, begin: int, end: int) -> float:
        """The greatest of the values at [begin, end), of which there must be one."""
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
