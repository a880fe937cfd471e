"""Read the samples of a scope whose layout is known from an earlier message. Pure.

The messages of a sender differ only in their numbers. A layout has the positions and fields of
these numbers, so that one call unpacks them. `SampleLayout.read` returns the same rows as
`normalise_points`. It returns None if `normalise_points` would refuse an item.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import ge, itemgetter, le
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from collector.drop_reasons import Skip
from collector.normalise.data_points import SampleField
from collector.normalise.resources import ResourceLabels
from collector.normalise.values import (
    EARLIEST_UNIX_NS,
    MAX_AHEAD_NS,
    MAX_DURATION_S,
    MAX_NUMBER,
    MAX_TOTAL,
    MAX_TOTAL_S,
    bounded_total,
)
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample

Row = TypeVar("Row", EngineSample, GpuSample)
Take = Callable[[Sequence[Any]], tuple[Any, ...]]

TIMESTAMP, INTEGER, DOUBLE = "Q", "q", "d"


class Number(NamedTuple):
    """One number in an encoded scope. `offset` is its position in bytes."""

    offset: int
    kind: str
    """The number's `struct` format."""
    as_float: bool = False
    """Whether to convert the number to a float, because its field is a float."""


class Bounds(NamedTuple):
    """The allowed range of one number. `place` is its index in `LayoutDescription.numbers`."""

    place: int
    low: float
    high: float


class SampleParts(NamedTuple):
    """The parts of one sample. The integers (except `points`) are indices in
    `LayoutDescription.numbers`."""

    constants: Mapping[str, Any]
    """All fields of the row. A field whose value differs between messages is None."""
    times: tuple[int, ...]
    """The timestamps of all data points. They must be equal."""
    starts: tuple[int, ...]
    """The start timestamps of all data points. They must be equal."""
    values: Mapping[str, int]
    sums: Mapping[str, tuple[int, ...]]
    """For each field that is a sum over data points, the values of these points."""
    points: int


class LayoutDescription(NamedTuple):
    """The content of a layout, in a form that can be pickled."""

    numbers: tuple[Number, ...]
    bounds: tuple[Bounds, ...]
    engines: tuple[SampleParts, ...]
    gpus: tuple[SampleParts, ...]
    accepted: int
    skipped: Mapping[Skip, int]
    truncated_texts: int


class ScopeRows(NamedTuple):
    """The samples of one scope."""

    samples: list[EngineSample]
    gpus: list[GpuSample]


class SampleLayout:
    """Reads scopes with one layout."""

    __slots__ = ("_checked", "_engines", "_floats", "_gpus", "_highs", "_lows", "_unpack", "about")

    def __init__(self, about: LayoutDescription) -> None:
        self.about = about
        self._unpack = _unpacking(about.numbers)
        self._floats = tuple(at for at, each in enumerate(about.numbers) if each.as_float)
        self._checked = _taking([each.place for each in about.bounds])
        self._lows = tuple(each.low for each in about.bounds)
        self._highs = tuple(each.high for each in about.bounds)
        self._engines = tuple(_Sample(each) for each in about.engines)
        self._gpus = tuple(_Sample(each) for each in about.gpus)

    def read(self, scoped: bytes, origin: ResourceLabels, now_unix_ns: int) -> ScopeRows | None:
        """A scope's samples, or None if a number is invalid or a label is missing."""
        numbers = list(self._unpack(scoped))
        for place in self._floats:
            numbers[place] = float(numbers[place])
        given = self._checked(numbers)
        if not (all(map(le, self._lows, given)) and all(map(ge, self._highs, given))):
            return None
        if origin.replica is None or (self._engines and origin.process is None):
            return None
        latest_unix_ns = now_unix_ns + MAX_AHEAD_NS
        samples = []
        for engine in self._engines:
            span = engine.span(numbers, latest_unix_ns)
            if span is None:
                return None
            fields = engine.fields(numbers)
            fields["started_unix_ns"], fields["at_unix_ns"] = span
            fields["replica"], fields["process"] = origin.replica, origin.process
            fields["region"] = origin.region
            samples.append(_row(EngineSample, fields))
        gpus = []
        for gpu in self._gpus:
            span = gpu.span(numbers, latest_unix_ns)
            if span is None:
                return None
            fields = gpu.fields(numbers)
            fields["replica"], fields["at_unix_ns"] = origin.replica, span[1]
            gpus.append(_row(GpuSample, fields))
        return ScopeRows(samples, gpus)


def _row(row_type: type[Row], fields: dict[str, Any]) -> Row:
    """A row with these fields. The constructor of a frozen dataclass is not called, because it
    takes ten times as long."""
    row = object.__new__(row_type)
    object.__setattr__(row, "__dict__", fields)
    return row


class _Sample:
    __slots__ = ("_constants", "_names", "_starts", "_sums", "_times", "_values")

    def __init__(self, parts: SampleParts) -> None:
        self._constants = dict(parts.constants)
        self._times, self._starts = _taking(parts.times), _taking(parts.starts)
        self._names = tuple(parts.values)
        self._values = _taking(list(parts.values.values()))
        self._sums = {name: _taking(places) for name, places in parts.sums.items()}

    def span(self, numbers: Sequence[Any], latest_unix_ns: int) -> tuple[int, int] | None:
        """The start and the timestamp of the sample in unix ns. It is None if one of them is
        invalid, or differs between the points."""
        times, starts = self._times(numbers), self._starts(numbers)
        at_unix_ns = times[0]
        started_unix_ns = starts[0] if starts else at_unix_ns
        if (
            times.count(at_unix_ns) != len(times)
            or starts.count(started_unix_ns) != len(starts)
            or not EARLIEST_UNIX_NS <= started_unix_ns <= at_unix_ns <= latest_unix_ns
        ):
            return None
        return started_unix_ns, at_unix_ns

    def fields(self, numbers: Sequence[Any]) -> dict[str, Any]:
        found = self._constants.copy()
        found.update(zip(self._names, self._values(numbers), strict=True))
        for name, take in self._sums.items():
            found[name] = bounded_total(sum(take(numbers)))
        return found


_MAX_VALUES: Final[Mapping[str, float]] = {
    "count": MAX_TOTAL,
    "number": MAX_NUMBER,
    "ratio": 1.0,
    "score": MAX_NUMBER,
}


def bounds_of(place: int, target: SampleField) -> Bounds:
    """The range of values that `data_points.value_of` accepts for a field."""
    most = _MAX_VALUES.get(target.quantity)
    if most is None:
        most = MAX_TOTAL_S if target.shape == "sum" else MAX_DURATION_S
    return Bounds(place, -most if target.quantity == "score" else 0, most)


def _taking(places: Sequence[int]) -> Take:
    if len(places) > 1:
        take: Take = itemgetter(*places)
        return take
    return lambda numbers: tuple(numbers[place] for place in places)


def _unpacking(numbers: Sequence[Number]) -> Callable[[bytes], tuple[Any, ...]]:
    form, at = "<", 0
    for number in numbers:
        form += f"{number.offset - at}x{number.kind}"
        at = number.offset + 8
    return Struct(form).unpack_from
