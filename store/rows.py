"""What a row must be to be kept, and its values in the order of its table's columns.

The types are the dataclasses' own affair; here is what they cannot say: that a number fits
the column, that a text is valid Unicode, that a measurement is finite.
"""

from collections.abc import Callable
from math import isfinite
from operator import attrgetter

from store.schema import GPUS, REQUESTS, SAMPLES, STARTS, Field, fields_of
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

Row = RequestTimeline | EngineSample | EngineStart | GpuSample

_INT64 = range(-(2**63), 2**63)
_TAKES: dict[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
}


def flaw(row: Row) -> str | None:
    """Why the store refuses this row; None where it does not.

    For who would rather lose one row than the submission it is in.
    """
    for column in fields_of(type(row)):
        value = getattr(row, column.name)
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


def request_values(row: RequestTimeline) -> tuple[object, ...]:
    """The row as its table has it.

    Raises:
        ValueError: a duration or ratio is NaN or infinite.
    """
    _refuse_if_not_finite(row, _REQUEST_FLOATS(row))
    return _REQUEST_VALUES(row)


def sample_values(row: EngineSample) -> tuple[object, ...]:
    """The row as its table has it; raises as above."""
    _refuse_if_not_finite(row, _SAMPLE_FLOATS(row))
    return _SAMPLE_VALUES(row)


def gpu_values(row: GpuSample) -> tuple[object, ...]:
    """The row as its table has it; raises as above."""
    _refuse_if_not_finite(row, _GPU_FLOATS(row))
    return _GPU_VALUES(row)


def start_values(row: EngineStart) -> tuple[object, ...]:
    """The row as its table has it; it has no number that might not be finite."""
    return _START_VALUES(row)


def _refuse_if_not_finite(row: Row, floats: tuple[float | None, ...]) -> None:
    # Checked beforehand because SQLite would take it: NaN it keeps as NULL, without a word.
    # The sum is finite if all are; only where it is not does it pay to look at each.
    if not isfinite(sum(filter(None, floats))) and (reason := flaw(row)):
        raise ValueError(reason)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _floats_of(noun: type) -> Callable[[object], tuple[float | None, ...]]:
    return attrgetter(*(each.name for each in fields_of(noun) if each.kind.python is float))


_REQUEST_VALUES: Callable[[object], tuple[object, ...]] = attrgetter(*REQUESTS.columns.keys())
_SAMPLE_VALUES: Callable[[object], tuple[object, ...]] = attrgetter(*SAMPLES.columns.keys())
_START_VALUES: Callable[[object], tuple[object, ...]] = attrgetter(*STARTS.columns.keys())
_GPU_VALUES: Callable[[object], tuple[object, ...]] = attrgetter(*GPUS.columns.keys())
_REQUEST_FLOATS = _floats_of(RequestTimeline)
_SAMPLE_FLOATS = _floats_of(EngineSample)
_GPU_FLOATS = _floats_of(GpuSample)
