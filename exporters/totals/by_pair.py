"""Totals for each pair of labels, such as model and replica."""

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

from exporters.totals.request_batch import Pair


class _Copied(Protocol):
    def copy(self) -> Self:
        """Return a copy."""


class _Zeroed(_Copied, Protocol):
    def zero(self) -> Self:
        """Return totals with the same series, each of which is 0."""


T = TypeVar("T", bound=_Copied)
Z = TypeVar("Z", bound=_Zeroed)


class ByPair(Generic[T]):
    """Maps each pair of labels to its totals. `empty` creates the totals of a new pair."""

    def __init__(self, empty: Callable[[], T]) -> None:
        self._empty = empty
        self._by_pair: dict[Pair, T] = {}

    def expect(self, pair: Pair) -> T:
        """Return the totals of a pair.

        Create them if necessary. Call this before the first request of a pair, so that its series
        begin at 0. Otherwise, `rate()` in Prometheus would miss the first requests.
        """
        totals = self._by_pair.get(pair)
        if totals is None:
            totals = self._by_pair[pair] = self._empty()
        return totals

    def forget(self, pairs: set[Pair]) -> None:
        """Remove pairs that are no longer within the limit."""
        for pair in pairs:
            del self._by_pair[pair]

    @property
    def pairs(self) -> set[Pair]:
        """The pairs that have totals."""
        return set(self._by_pair)

    def copy(self) -> dict[Pair, T]:
        """Return a copy."""
        return {pair: totals.copy() for pair, totals in self._by_pair.items()}


class FromZeroByPair(ByPair[Z]):
    """Totals for pairs that are not known before their first request. Their series still begin at
    0, so that `rate()` in Prometheus does not miss the first requests."""

    def __init__(self, empty: Callable[[], Z]) -> None:
        super().__init__(empty)
        self._copied: set[Pair] | None = None

    def copy(self) -> dict[Pair, Z]:
        """Return a copy. In the first copy after a pair was added, the pair's totals are 0. This
        does not apply to the first copy of all."""
        copied, self._copied = self._copied, self.pairs
        new = set() if copied is None else self.pairs - copied
        return {
            pair: totals.zero() if pair in new else totals.copy()
            for pair, totals in self._by_pair.items()
        }
