"""Reads everything that an explanation of a time range needs: requests, samples, starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from store.columns.column_cache import ColumnCache
from store.columns.downsampled import Downsampled, engine_samples, gpu_samples
from store.columns.request_columns import request_columns
from store.queries import (
    GPU_COLUMNS,
    REQUEST_COLUMNS,
    SAMPLE_COLUMNS,
    Window,
    gpu_table,
    sample_table,
)
from store.replicas.engine_starts import in_force, starts_between
from store.requests.best_source import NEAR_NS, SECOND
from store.schema import GPUS, REQUESTS, SAMPLES
from telemetry.starts import EngineStart

MOST_SAMPLES: Final = 400_000
"""Kept of engines, and of GPUs: at most 200 MB. Longer ranges are thinned."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rows of a time range, and the starts in force in it."""

    requests: pa.Table
    engines: pa.Table
    gpus: pa.Table
    starts: Sequence[EngineStart]
    samples_every_s: int | None = None
    """How far apart the slots begin that were read of samples; None where all were."""


def evidence(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None],
) -> Evidence:
    """Read what an explanation rests on.

    Args:
        engine: from `open_database`.
        window: all of it; a comparison's two stretches and what lies between.
        columns: of each request; those that the store does not have are left out.
        equals: which requests; samples are not filtered.
    """
    known = [name for name in columns if name in REQUEST_COLUMNS]
    return Evidence(
        requests=request_columns(engine, window, known, equals),
        engines=sample_table(engine, window),
        gpus=gpu_table(engine, window),
        starts=_starts(engine, window),
    )


class EvidenceCache:
    """The same, for who asks again: what was read is kept (`column_cache`).

    Requests' numbers have seven digits here, which halves what a million of them take.

    Args:
        engine: from `open_database`.
        columns: of each request, `received_unix_ns` among them.
    """

    def __init__(self, engine: Engine, columns: Sequence[str]) -> None:
        self._engine = engine
        self._columns = [name for name in columns if name in REQUEST_COLUMNS]
        self._requests = ColumnCache(
            engine,
            REQUESTS.c.received_unix_ns,
            self._read_requests,
            depends=_may_be_told_better,
            reach_ns=NEAR_NS,
        )
        self._engines = ColumnCache(
            engine,
            SAMPLES.c.at_unix_ns,
            lambda window: self._read_engines(window).table,
            most_rows=MOST_SAMPLES,
        )
        self._gpus = ColumnCache(
            engine,
            GPUS.c.at_unix_ns,
            lambda window: self._read_gpus(window).table,
            most_rows=MOST_SAMPLES,
        )

    @property
    def requests(self) -> int:
        """How many are kept."""
        return self._requests.rows

    def read(self, window: Window, equals: Mapping[str, str | None]) -> Evidence:
        """Arguments as for `evidence`."""
        engines, gpus = self._engines.table(window), self._gpus.table(window)
        thinned = [
            self._read_engines(window) if engines is None else Downsampled(engines, 1),
            self._read_gpus(window) if gpus is None else Downsampled(gpus, 1),
        ]
        apart = [each.every_s for each in thinned if each.one_in > 1]
        return Evidence(
            self._asked_for(window, equals),
            thinned[0].table,
            thinned[1].table,
            _starts(self._engine, window),
            max(apart, default=None),
        )

    def _asked_for(self, window: Window, equals: Mapping[str, str | None]) -> pa.Table:
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
        return found.cast(pa.schema([_shorter(each) for each in found.schema]), safe=False)

    def _read_engines(self, window: Window) -> Downsampled:
        return engine_samples(self._engine, window, SAMPLE_COLUMNS, most_rows=MOST_SAMPLES)

    def _read_gpus(self, window: Window) -> Downsampled:
        return gpu_samples(self._engine, window, GPU_COLUMNS, most_rows=MOST_SAMPLES)


def _shorter(field: pa.Field) -> pa.Field:
    number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
    if number and not field.name.endswith("_unix_ns"):
        return field.with_type(pa.float32())
    return field


def _may_be_told_better(requests: pa.Table) -> bool:
    """Whether a row that is yet to come may take one's place (docs/decisions/019)."""
    told_by = requests["source"].cast(pa.string())
    return bool(pc.any(pc.is_in(told_by, pa.array([each.value for each in SECOND]))).as_py())


def _starts(engine: Engine, window: Window) -> Sequence[EngineStart]:
    return (
        *in_force(engine, window.from_unix_ns),
        *starts_between(engine, window.from_unix_ns, window.to_unix_ns),
    )
