"""Checks whether a row can be stored, and returns its values in the order of its table's columns.

The dataclasses define the types. This module checks the rest: a number fits its column, a text is
valid Unicode, a measurement is finite.
"""

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from operator import attrgetter

from store.schema import GPUS, IN_FLIGHT, SAMPLES, STARTS, Field, fields_of
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.request_rows import PLACE, RequestRows
from telemetry.request_rows import Row as Values
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

_INT64 = range(-(2**63), 2**63)
_TAKES: dict[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
}


def flaw(noun: type, values: Iterable[object]) -> str | None:
    """Why the store refuses a row of this noun; None where it does not.

    For who would rather lose one row than the submission it is in.
    """
    for column, value in zip(fields_of(noun), values, strict=True):
        why = _why_not(value, column)
        if why:
            # Hexadecimal, because Python will not write an endless number in decimal.
            shown = f"{value:#x}" if isinstance(value, int) else repr(value)
            return f"{column.name} = {shown:.60}: {why}"
    return None


def _why_not(value: object, column: Field) -> str | None:
    if value is None:
        return None if column.nullable else "a value is needed"
    if not isinstance(value, _TAKES[column.kind.python]):
        return f"not {column.kind.python.__name__}"
    if isinstance(value, float) and not isfinite(value):
        return "not a finite number"
    if isinstance(value, int) and value not in _INT64:
        return "not within 64 bits"
    if isinstance(value, str) and not _encodes(value):
        return "not valid Unicode"
    return None


def request_values(requests: RequestRows) -> list[Values]:
    """The rows as their table has them.

    Raises:
        ValueError: a duration or ratio is NaN or infinite.
    """
    # Checked beforehand because SQLite would take it: NaN it keeps as NULL, without a word.
    # The sum is finite if all are; only where it is not does it pay to look at each.
    columns = list(zip(*requests.rows, strict=True))
    if not all(isfinite(sum(filter(None, columns[place]))) for place in _REQUEST_FLOATS if columns):
        _refuse(RequestTimeline, requests.rows)
    return requests.rows


def sample_values(row: EngineSample) -> Values:
    """The row as its table has it; raises as above."""
    if not isfinite(sum(filter(None, _SAMPLE_FLOATS(row)))):
        _refuse(EngineSample, [_SAMPLE_VALUES(row)])
    return _SAMPLE_VALUES(row)


def gpu_values(row: GpuSample) -> Values:
    """The row as its table has it; raises as above."""
    if not isfinite(sum(filter(None, _GPU_FLOATS(row)))):
        _refuse(GpuSample, [_GPU_VALUES(row)])
    return _GPU_VALUES(row)


def start_values(row: EngineStart) -> Values:
    """The row as its table has it; it has no number that might not be finite."""
    return _START_VALUES(row)


def in_flight_values(row: InFlightRequest) -> dict[str, object]:
    """The row by its table's columns; raises as above."""
    values = values_of(row)
    if reason := flaw(InFlightRequest, values):
        raise ValueError(reason)
    return {**dict(zip(IN_FLIGHT.columns.keys(), values, strict=True)), "source": str(row.source)}


def values_of(row: EngineSample | EngineStart | GpuSample | InFlightRequest) -> Values:
    """The values of a row's fields in their order, whatever they are."""
    return tuple(getattr(row, each.name) for each in fields_of(type(row)))


def _refuse(noun: type, rows: Sequence[Values]) -> None:
    for row in rows:
        if reason := flaw(noun, row):
            raise ValueError(reason)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _floats_of(noun: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields_of(noun) if each.kind.python is float)


_SAMPLE_VALUES: Callable[[object], Values] = attrgetter(*SAMPLES.columns.keys())
_START_VALUES: Callable[[object], Values] = attrgetter(*STARTS.columns.keys())
_GPU_VALUES: Callable[[object], Values] = attrgetter(*GPUS.columns.keys())
_REQUEST_FLOATS = tuple(PLACE[name] for name in _floats_of(RequestTimeline))
_SAMPLE_FLOATS: Callable[[object], Values] = attrgetter(*_floats_of(EngineSample))
_GPU_FLOATS: Callable[[object], Values] = attrgetter(*_floats_of(GpuSample))
