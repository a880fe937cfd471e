"""Many requests as rows of plain values, and as columns.

A `RequestTimeline` is created only when it is accessed. Creating it takes longer than all other
processing.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, get_type_hints, overload

import numpy as np

from telemetry.quantiles import FloatArray
from telemetry.requests import (
    FIELDS,
    Basis,
    Outcome,
    PricedBy,
    RequestTimeline,
    Source,
    request_of_values,
)

Row = tuple[Any, ...]
"""All fields of a request, in order. Enums are plain strings, because SQLite's driver processes
plain strings faster."""

PLACE: Final = {field: place for place, field in enumerate(FIELDS)}

_ENUMS: Final[tuple[tuple[int, type[StrEnum]], ...]] = (
    (PLACE["outcome"], Outcome),
    (PLACE["source"], Source),
    (PLACE["basis"], Basis),
    (PLACE["priced_by"], PricedBy),
)
_values_of: Final = attrgetter(*FIELDS)

_TYPES: Final = get_type_hints(RequestTimeline)
MEASURES: Final = (
    *(name for name in FIELDS if _TYPES[name] in (float, float | None) and name != "cost_usd"),
    *("prompt_tokens", "cached_tokens", "output_tokens"),
)
"""The numeric fields that `RequestRows.measures` returns. `cost_usd` is not included, because it is
computed later."""
_MEASURE: Final = {field: place for place, field in enumerate(MEASURES)}


def row_of(request: RequestTimeline) -> Row:
    """Convert a request to a row."""
    values = list(_values_of(request))
    for place, _ in _ENUMS:
        value = values[place]
        if isinstance(value, StrEnum):
            values[place] = value.value
    return tuple(values)


def request_of(row: Row) -> RequestTimeline:
    """Convert a row to a request."""
    values = list(row)
    for place, kind in _ENUMS:
        if values[place] is not None:
            values[place] = kind(values[place])
    return request_of_values(values)


class RequestRows(Sequence[RequestTimeline]):
    """A sequence of requests that stores rows. Do not add rows after a column was read.

    Args:
        measures: the array that `measures` returns. If it is None, it is computed when it is
            needed.
    """

    __slots__ = ("_columns", "_measures", "rows")

    def __init__(self, rows: list[Row] | None = None, measures: FloatArray | None = None) -> None:
        self.rows: list[Row] = [] if rows is None else rows
        self._measures = measures
        self._columns: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, requests: Iterable[RequestTimeline]) -> "RequestRows":
        """Convert requests to a `RequestRows`. A `RequestRows` is returned unchanged."""
        return requests if isinstance(requests, cls) else cls(list(map(row_of, requests)))

    @classmethod
    def joined(cls, several: "Sequence[RequestRows]") -> "RequestRows":
        """Concatenate several `RequestRows`."""
        if len(several) == 1:
            return several[0]
        rows = [row for each in several for row in each.rows]
        return cls(rows, np.concatenate([each.measures() for each in several], axis=1))

    def taken(self, places: Sequence[int]) -> "RequestRows":
        """The requests at these indices. If all requests are selected, this object is returned."""
        if len(places) == len(self.rows):
            return self
        return RequestRows([self.rows[each] for each in places])

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> RequestTimeline: ...
    @overload
    def __getitem__(self, place: slice) -> "RequestRows": ...
    def __getitem__(self, place: int | slice) -> "RequestTimeline | RequestRows":
        if isinstance(place, slice):
            return RequestRows(self.rows[place])
        return request_of(self.rows[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestRows) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]  # the object is mutable

    def column(self, field: str) -> list[Any]:
        """The values of a field. Unknown values are None."""
        found = self._columns.get(field)
        if found is None:
            place = PLACE[field]
            found = self._columns[field] = [row[place] for row in self.rows]
        return found

    def measures(self) -> FloatArray:
        """(len(MEASURES), number of requests): the numeric fields, with NaN for unknown values."""
        if self._measures is None:
            columns = list(zip(*self.rows, strict=True)) or [()] * len(FIELDS)
            wanted = [columns[PLACE[field]] for field in MEASURES]
            self._measures = np.array(wanted, np.float64)
        return self._measures

    def numbers(self, field: str) -> FloatArray:
        """The values of a numeric field or `tpot_s`: (n,), with NaN if unknown. Do not modify the
        array."""
        if field == "tpot_s":
            return self._tpot_s()
        if field in _MEASURE:
            measure: FloatArray = self.measures()[_MEASURE[field]]
            return measure
        return np.array(self.column(field), np.float64)

    def is_known(self, field: str) -> bool:
        """Whether any request has a value for the field."""
        return any(value is not None for value in self.column(field))

    def _tpot_s(self) -> FloatArray:
        between = self.numbers("output_tokens") - 1  # this creates a new array
        between[~(between >= 1)] = np.nan
        return self.numbers("decode_s") / between
