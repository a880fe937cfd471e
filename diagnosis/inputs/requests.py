"""The requests of a stretch of time as columns.

Pure. Arrays in, arrays out; a million requests are thirty arrays, never a million objects.
An unknown number is NaN here and only here: it takes part in no sum.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_Column = TypeVar("_Column")
_Given = TypeVar("_Given")

LABELS = ("outcome", "model", "lora", "route", "tenant", "region", "replica", "config", "operation")
"""What a request is known by; a caller may leave any out."""

NUMBERS = (
    *("frontend_s", "handoff_s", "queue_s", "prefill_s", "decode_s", "delivery_s"),
    *("queue_seats_s", "queue_kv_s", "queue_budget_s", "queue_held_s", "queue_step_s"),
    *(f"prefill_{part}_s" for part in ("own", "others_prefill", "others_decode")),
    *("prefill_preempted_s", "prefill_stall_s"),
    *(f"decode_{part}_s" for part in ("own", "others_prefill", "others_decode")),
    *("decode_preempted_s", "decode_stall_s"),
    *("ttft_s", "itl_max_s", "e2e_s", "streamed"),
    *("prompt_tokens", "cached_tokens", "external_cached_tokens", "output_tokens"),
    *("preemptions", "waiting_at_arrival", "running_at_arrival", "kv_usage_at_arrival"),
    "others_prefill_tokens_max",
    "engine",
)
"""What is measured of a request, in the unit its name says; a caller may leave any out."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of names: `values[codes[i]]` is the i-th; −1 is unknown."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def is_value(self, value: str) -> BoolArray:
        """Which rows bear it."""
        if value not in self.values:
            return np.zeros(self.codes.size, dtype=np.bool_)
        return np.asarray(self.codes == self.values.index(value))

    def is_any(self, values: Collection[str]) -> BoolArray:
        """Which rows bear one of them."""
        places = [place for place, name in enumerate(self.values) if name in values]
        return np.isin(self.codes, places)


class LazyColumns(Mapping[str, _Column]):
    """Columns, each made of another when it is first asked for. Of thirty that a request has, a
    question about a million of them takes five."""

    def __init__(self, given: Mapping[str, _Given], make: Callable[[_Given], _Column]) -> None:
        self._given: Mapping[str, Any] = given
        self._make = make
        self._made: dict[str, _Column] = {}

    def __getitem__(self, name: str) -> _Column:
        if name not in self._made:
            self._made[name] = self._make(self._given[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in any order, each column of the same length.

    Raises:
        ValueError: columns of different lengths, or one of no known name.
    """

    received_unix_ns: IntArray
    numbers: Mapping[str, FloatArray] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.numbers, LazyColumns):
            return  # of one table, or of columns that were looked at before
        for name in self.numbers:
            if name not in NUMBERS:
                raise ValueError(f"column: {name!r}; allowed: {', '.join(NUMBERS)}")
        for name in self.labels:
            if name not in LABELS:
                raise ValueError(f"label: {name!r}; allowed: {', '.join(LABELS)}")
        sizes = {name: values.size for name, values in self.numbers.items()}
        sizes |= {name: label.codes.size for name, label in self.labels.items()}
        for name, size in sizes.items():
            if size != self.received_unix_ns.size:
                raise ValueError(f"{name} has {size} rows, received_unix_ns {len(self)}")

    def __len__(self) -> int:
        return int(self.received_unix_ns.size)

    def number(self, name: str) -> FloatArray:
        """A column of numbers; all NaN where the caller has none of that name."""
        found = self.numbers.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def label(self, name: str) -> Labels:
        """A column of names; all unknown where the caller has none of that name."""
        found = self.labels.get(name)
        return Labels(np.full(len(self), -1, dtype=np.int32), ()) if found is None else found

    def of_engine(self, replica: str, engine: float | None = None) -> BoolArray:
        """(n,) which were served by an engine of a replica: those whose engine is not known count
        for each. None: by any of the replica."""
        there = self.label("replica").is_value(replica)
        if engine is None:
            return there
        number = self.number("engine")
        return np.asarray(there & (np.isnan(number) | (number == engine)))

    def rows(self, chosen: BoolArray | IntArray | slice) -> "Requests":
        """Some of them, in the order asked for."""
        return Requests(
            self.received_unix_ns[chosen],
            LazyColumns(self.numbers, lambda values: values[chosen]),
            LazyColumns(self.labels, lambda label: Labels(label.codes[chosen], label.values)),
        )

    def matching(self, where: Mapping[str, str | None]) -> BoolArray:
        """(n,) which of them have these labels; a value of None means that it is unknown."""
        found = np.ones(len(self), dtype=np.bool_)
        for name, value in where.items():
            label = self.label(name)
            found &= label.codes < 0 if value is None else label.is_value(value)
        return found

    def within(self, from_unix_ns: int, to_unix_ns: int) -> "Requests":
        """Those received in [from, to)."""
        at = self.received_unix_ns
        if at.size and (np.diff(at) >= 0).all():  # as the store has them: no copy is needed
            low, high = np.searchsorted(at, [from_unix_ns, to_unix_ns])
            return self.rows(slice(int(low), int(high)))
        return self.rows((at >= from_unix_ns) & (at < to_unix_ns))
