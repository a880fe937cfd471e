"""Check rows, and return their values in the order of the columns.

Integers must fit in 64 bits, text must be valid Unicode, and floats must be finite.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from math import isfinite
from operator import attrgetter, itemgetter

from store.schema import GPUS, IN_FLIGHT, SAMPLES, STARTS, SchemaField, fields_of
from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.request_rows import PLACE, RequestRows
from telemetry.request_rows import Row as Values
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

Single = (
    ApplicationOperation
    | CacheLookup
    | ColdStart
    | EngineSample
    | EngineStart
    | GpuSample
    | InFlightRequest
    | Probe
)
"""A row that is stored as one object, unlike the rows of `RequestRows`."""
_INT64 = range(-(2**63), 2**63)
_TAKES: dict[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
}


def invalid_reason(row_type: type, values: Iterable[object]) -> str | None:
    """Why the store refuses a row, or None if the row is valid."""
    for column, value in zip(fields_of(row_type), values, strict=True):
        why = _why_not(value, column)
        if why:
            # Use hexadecimal, because Python refuses to print very large integers in decimal.
            shown = f"{value:#x}" if isinstance(value, int) else repr(value)
            return f"{column.name} = {shown:.60}: {why}"
    return None


def _why_not(value: object, column: SchemaField) -> str | None:
    if value is None:
        return None if column.nullable else "a value is required"
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
    """The values of each row in the order of the table's columns.

    Raises:
        ValueError: a duration or ratio is NaN or infinite.
    """
    # The check is needed because SQLite would store NaN as NULL. Single values are checked only if
    # their sum is not finite.
    columns = list(zip(*requests.rows, strict=True))
    if not all(isfinite(sum(filter(None, columns[place]))) for place in _REQUEST_FLOATS if columns):
        _refuse(RequestTimeline, requests.rows)
    return requests.rows


def sample_values(row: EngineSample) -> Values:
    """The values of a sample. See `request_values`."""
    values = _SAMPLE_VALUES(row)
    if not isfinite(sum(filter(None, _SAMPLE_FLOATS(values)))):
        _refuse(EngineSample, [values])
    return values


def gpu_values(row: GpuSample) -> Values:
    """The values of a GPU sample. See `request_values`."""
    values = _GPU_VALUES(row)
    if not isfinite(sum(filter(None, _GPU_FLOATS(values)))):
        _refuse(GpuSample, [values])
    return values


def start_values(row: EngineStart) -> Values:
    """The values of a row in the order of the table's columns."""
    return _START_VALUES(row)


def checked_values(row: ApplicationOperation | CacheLookup | ColdStart | Probe) -> Values:
    """The values of a row in the order of the table's columns.

    Raises:
        ValueError: the row is invalid.
    """
    return tuple(str(each) if isinstance(each, StrEnum) else each for each in _valid(row))


def in_flight_values(row: InFlightRequest) -> dict[str, object]:
    """The values of a row by column.

    Raises:
        ValueError: the row is invalid.
    """
    values = dict(zip(IN_FLIGHT.columns.keys(), _valid(row), strict=True))
    return {**values, "source": str(row.source)}


def values_of(row: Single) -> Values:
    """The values of a row's fields in order, unchecked."""
    return tuple(getattr(row, each.name) for each in fields_of(type(row)))


def _valid(
    row: ApplicationOperation | CacheLookup | ColdStart | InFlightRequest | Probe,
) -> Values:
    values = values_of(row)
    if reason := invalid_reason(type(row), values):
        raise ValueError(reason)
    return values


def _refuse(row_type: type, rows: Sequence[Values]) -> None:
    for row in rows:
        if reason := invalid_reason(row_type, row):
            raise ValueError(reason)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _floats_of(row_type: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields_of(row_type) if each.kind.python is float)


_SAMPLE_VALUES: Callable[[object], Values] = attrgetter(*SAMPLES.columns.keys())
_START_VALUES: Callable[[object], Values] = attrgetter(*STARTS.columns.keys())
_GPU_VALUES: Callable[[object], Values] = attrgetter(*GPUS.columns.keys())
_REQUEST_FLOATS = tuple(PLACE[name] for name in _floats_of(RequestTimeline))
_SAMPLE_FLOATS = itemgetter(*map(SAMPLES.columns.keys().index, _floats_of(EngineSample)))
_GPU_FLOATS = itemgetter(*map(GPUS.columns.keys().index, _floats_of(GpuSample)))
