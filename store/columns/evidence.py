"""Read the data for an explanation of a time range: requests, samples and engine starts."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from store.columns.column_cache import ColumnCache
from store.columns.downsampled import Downsampled, engine_samples, gpu_samples
from store.columns.request_columns import request_columns
from store.queries import REQUEST_COLUMNS
from store.replicas.cold_starts import cold_starts_between
from store.replicas.engine_starts import in_force, starts_between
from store.requests.best_source import NEAR_NS, SECOND
from store.schema import GPUS, REQUESTS, SAMPLES
from telemetry.cold_starts import ColdStart
from telemetry.starts import EngineStart
from telemetry.window import Window

MAX_SAMPLES: Final = 400_000
"""Maximum number of cached engine samples, and of GPU samples (at most 100 MB each)."""

_Read = TypeVar("_Read")


class EvidenceColumns(NamedTuple):
    """The columns to read. Unknown columns of requests are left out."""

    requests: Sequence[str]
    engines: Sequence[str]
    gpus: Sequence[str]

    @property
    def known_of_requests(self) -> list[str]:
        """The names in `requests` that are columns of the requests table."""
        return [name for name in self.requests if name in REQUEST_COLUMNS]


@dataclass(frozen=True, slots=True)
class EvidenceRows:
    """The rows of a time range. `starts` also has each engine's latest start before the range."""

    requests: pa.Table
    engines: pa.Table
    gpus: pa.Table
    starts: Sequence[EngineStart]
    cold_starts: Sequence[ColdStart] = ()
    samples_every_s: int | None = None
    """Seconds between two slots (`downsampled`), or None if all samples were read."""


def evidence(
    engine: Engine,
    window: Window,
    columns: EvidenceColumns,
    equals: Mapping[str, str | None],
) -> EvidenceRows:
    """Read the data for an explanation.

    Args:
        window: a range that contains the baseline and the range to explain.
        equals: labels of the requests. They do not filter the samples.
    """
    known = columns.known_of_requests
    requests, engines, gpus = _together(
        lambda: request_columns(engine, window, known, equals),
        lambda: engine_samples(engine, window, columns.engines, max_rows=None).table,
        lambda: gpu_samples(engine, window, columns.gpus, max_rows=None).table,
    )
    starts, cold_starts = _starts(engine, window), _cold_starts(engine, window)
    return EvidenceRows(requests, engines, gpus, starts, cold_starts)


def _together(*reads: Callable[[], _Read]) -> list[_Read]:
    """Run reads in parallel, with the caller's access rights."""
    with ThreadPoolExecutor(len(reads), "evidence") as threads:
        running = [threads.submit(copy_context().run, each) for each in reads]
    return [each.result() for each in running]


class EvidenceCache:
    """Reads the data for explanations through a cache (`column_cache`).

    Numbers of requests are stored as 32-bit floats (seven digits), which halves the memory.
    """

    def __init__(self, engine: Engine, columns: EvidenceColumns) -> None:
        self._engine = engine
        self._of_samples = columns
        self._columns = columns.known_of_requests
        self._requests = ColumnCache(
            engine,
            REQUESTS.c.received_unix_ns,
            self._read_requests,
            depends=_may_be_replaced,
            reach_ns=NEAR_NS,
        )
        self._engines = ColumnCache(
            engine,
            SAMPLES.c.at_unix_ns,
            lambda window: self._read_engines(window).table,
            max_rows=MAX_SAMPLES,
        )
        self._gpus = ColumnCache(
            engine,
            GPUS.c.at_unix_ns,
            lambda window: self._read_gpus(window).table,
            max_rows=MAX_SAMPLES,
        )

    @property
    def requests(self) -> int:
        """Number of cached requests."""
        return self._requests.rows

    def read(self, window: Window, equals: Mapping[str, str | None]) -> EvidenceRows:
        """Read the data for an explanation. See `evidence`."""
        requests, engines, gpus = _together(
            lambda: self._selected_requests(window, equals),
            lambda: self._engines.table(window),
            lambda: self._gpus.table(window),
        )
        thinned = [
            self._read_engines(window) if engines is None else Downsampled(engines, 1),
            self._read_gpus(window) if gpus is None else Downsampled(gpus, 1),
        ]
        apart = [each.every_s for each in thinned if each.one_in > 1]
        return EvidenceRows(
            requests,
            thinned[0].table,
            thinned[1].table,
            _starts(self._engine, window),
            _cold_starts(self._engine, window),
            max(apart, default=None),
        )

    def _selected_requests(self, window: Window, equals: Mapping[str, str | None]) -> pa.Table:
        found = self._requests.table(window) if set(equals) <= set(self._columns) else None
        if found is None:
            return request_columns(self._engine, window, self._columns, equals)
        for label, value in equals.items():
            texts = found[label].cast(pa.string())
            which = pc.is_null(texts) if value is None else pc.equal(texts, value)
            found = found.filter(which)
        return found.select(self._columns)

    def _read_requests(self, window: Window) -> pa.Table:
        wanted = [*dict.fromkeys([*self._columns, "source"])]
        found = request_columns(self._engine, window, wanted)
        return found.cast(pa.schema([_as_float32(each) for each in found.schema]), safe=False)

    def _read_engines(self, window: Window) -> Downsampled:
        return engine_samples(self._engine, window, self._of_samples.engines, max_rows=MAX_SAMPLES)

    def _read_gpus(self, window: Window) -> Downsampled:
        return gpu_samples(self._engine, window, self._of_samples.gpus, max_rows=MAX_SAMPLES)


def _as_float32(field: pa.Field) -> pa.Field:
    number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
    if number and not field.name.endswith("_unix_ns"):
        return field.with_type(pa.float32())
    return field


def _may_be_replaced(requests: pa.Table) -> bool:
    sources = requests["source"].cast(pa.string())
    return bool(pc.any(pc.is_in(sources, pa.array([each.value for each in SECOND]))).as_py())


def _cold_starts(engine: Engine, window: Window) -> Sequence[ColdStart]:
    return cold_starts_between(engine, window.from_unix_ns, window.to_unix_ns)


def _starts(engine: Engine, window: Window) -> Sequence[EngineStart]:
    return (
        *in_force(engine, window.from_unix_ns),
        *starts_between(engine, window.from_unix_ns, window.to_unix_ns),
    )
