"""Requests of a time range, as columns. Pure. An unknown number is NaN, and means exclude it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_Column = TypeVar("_Column")
_Given = TypeVar("_Given")

LABELS = ("outcome", "model", "lora", "route", "tenant", "region", "replica", "config", "operation")
"""The label columns of requests. Each column is optional."""

SERVER = "server"
"""A label that `server_labels` adds if at least one replica has several engines."""

NUMBERS = (
    *("frontend_s", "handoff_s", "queue_s", "prefill_s", "decode_s", "delivery_s"),
    *("queue_seats_s", "queue_kv_s", "queue_budget_s", "queue_held_s", "queue_step_s"),
    *("kv_load_s", "grammar_s", "adapter_wait_s", "encoder_s"),
    *(f"prefill_{part}_s" for part in ("own", "others_prefill", "others_decode")),
    *("prefill_preempted_s", "prefill_stall_s"),
    *(f"decode_{part}_s" for part in ("own", "others_prefill", "others_decode")),
    *("decode_preempted_s", "decode_stall_s"),
    *("ttft_s", "first_content_s", "itl_max_s", "e2e_s", "streamed"),
    *("prompt_tokens", "cached_tokens", "external_cached_tokens", "output_tokens"),
    "reasoning_tokens",
    *("preemptions", "waiting_at_arrival", "running_at_arrival", "kv_usage_at_arrival"),
    "others_prefill_tokens_max",
    "engine",
)
"""The numeric columns of requests. Names that end in `_s` are in seconds. Columns are optional."""

MIN_REQUESTS: Final = 20
"""Minimum number of requests from which a mean, a quantile, a ratio or a rate is computed. The
standard error of 20 exponentially distributed values is 22 % of their mean."""


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A dictionary-encoded column: row i has the label `values[codes[i]]`; code −1 is unknown."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    @property
    def present(self) -> tuple[str, ...]:
        """The values that at least one row has. `values` may contain more values, because a
        selection of rows keeps the values of the whole table."""
        return tuple(self.values[code] for code in np.unique(self.codes) if code >= 0)

    def is_value(self, value: str) -> BoolArray:
        """Return whether each row has this value, (n,)."""
        if value not in self.values:
            return np.zeros(self.codes.size, dtype=np.bool_)
        return np.asarray(self.codes == self.values.index(value))

    def is_any(self, values: Collection[str]) -> BoolArray:
        """Return whether each row has one of these values, (n,)."""
        places = [place for place, name in enumerate(self.values) if name in values]
        return np.isin(self.codes, places)


class LazyColumns(Mapping[str, _Column]):
    """Columns that are converted on first use. A question uses about five of the thirty columns."""

    def __init__(self, given: Mapping[str, _Given], make: Callable[[_Given], _Column]) -> None:
        self._given: Mapping[str, Any] = given
        self._make = make
        self._made: dict[str, _Column] = {}

    def __getitem__(self, name: str) -> _Column:
        if name not in self._made:
            self._made[name] = self._make(self._given[name])
        return self._made[name]

    def also(self, columns: Mapping[str, _Column]) -> "LazyColumns[_Column]":
        """Return a copy with these columns, which are already converted."""
        found = LazyColumns[_Column]({**self._given, **columns}, self._make)
        found._made = {**self._made, **columns}
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def with_columns(
    columns: Mapping[str, _Column], added: Mapping[str, _Column]
) -> Mapping[str, _Column]:
    """Return the columns together with the added columns. An added column replaces a column of the
    same name.

    The columns of a table stay lazy. They may include labels that only a filter uses, and
    `Requests` rejects unknown names of other columns."""
    return columns.also(added) if isinstance(columns, LazyColumns) else {**columns, **added}


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests as columns of equal length. The requests may be in any order.

    Raises:
        ValueError: columns differ in length, or a name is unknown.
    """

    received_unix_ns: IntArray
    numbers: Mapping[str, FloatArray] = field(default_factory=dict)
    labels: Mapping[str, LabelColumn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.numbers, LazyColumns):
            return  # a table's columns have equal lengths; a check would convert all of them
        for name in self.numbers:
            if name not in NUMBERS:
                raise ValueError(f"column: {name!r}; allowed: {', '.join(NUMBERS)}")
        for name in self.labels:
            if name not in (*LABELS, SERVER):
                raise ValueError(f"label: {name!r}; allowed: {', '.join(LABELS)}")
        sizes = {name: values.size for name, values in self.numbers.items()}
        sizes |= {name: label.codes.size for name, label in self.labels.items()}
        for name, size in sizes.items():
            if size != self.received_unix_ns.size:
                raise ValueError(f"{name} has {size} rows, received_unix_ns {len(self)}")

    def __len__(self) -> int:
        return int(self.received_unix_ns.size)

    def number(self, name: str) -> FloatArray:
        """Return a column of numbers. All its numbers are NaN if there is no such column."""
        found = self.numbers.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def mean(self, name: str) -> float | None:
        """Return the mean of a column's known numbers, or None if no number is known."""
        values = self.number(name)
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else None

    def label(self, name: str) -> LabelColumn:
        """Return a column of labels. All its labels are unknown if there is no such column."""
        found = self.labels.get(name)
        return LabelColumn(np.full(len(self), -1, dtype=np.int32), ()) if found is None else found

    @property
    def server(self) -> LabelColumn:
        """The server of each request: its replica, or its engine if the replica has several."""
        return self.label(SERVER if SERVER in self.labels else "replica")

    def of_engine(self, replica: str, engine: float | None = None) -> BoolArray:
        """Return whether this engine of a replica served each request: (n,). If `engine` is None,
        all engines are selected. A request whose engine is unknown is selected for every engine."""
        there = self.label("replica").is_value(replica)
        if engine is None:
            return there
        number = self.number("engine")
        return np.asarray(there & (np.isnan(number) | (number == engine)))

    def rows(self, chosen: BoolArray | IntArray | slice) -> "Requests":
        """Return the selected requests, in the order of the rows in `chosen`."""
        if isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_:
            if chosen.all():
                return self
            chosen = np.flatnonzero(chosen)  # quicker than a mask for each column
        return Requests(
            self.received_unix_ns[chosen],
            LazyColumns(self.numbers, lambda values: values[chosen]),
            LazyColumns(self.labels, lambda label: LabelColumn(label.codes[chosen], label.values)),
        )

    def matching(self, where: Mapping[str, str | None]) -> BoolArray:
        """Return whether each request has these labels: (n,). A label of None matches requests
        whose label is unknown."""
        found = np.ones(len(self), dtype=np.bool_)
        for name, value in where.items():
            label = self.label(name)
            found &= label.codes < 0 if value is None else label.is_value(value)
        return found

    def within(self, from_unix_ns: int, to_unix_ns: int) -> "Requests":
        """Return the requests received from `from_unix_ns` (included) to `to_unix_ns`
        (excluded)."""
        at = self.received_unix_ns
        # the store returns rows in order of receipt, so a slice without a copy is enough
        if at.size and (np.diff(at) >= 0).all():
            low, high = np.searchsorted(at, [from_unix_ns, to_unix_ns])
            return self.rows(slice(int(low), int(high)))
        return self.rows((at >= from_unix_ns) & (at < to_unix_ns))
