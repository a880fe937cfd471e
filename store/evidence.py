"""All that bears on a stretch of time, read at once: requests, samples, starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Engine

from store.columns import request_columns
from store.queries import REQUEST_COLUMNS, Window, gpu_table, sample_table
from store.starts import in_force, starts_between
from telemetry.starts import EngineStart


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was told of a stretch of time, and the starts in force in it."""

    requests: pa.Table
    engines: pa.Table
    gpus: pa.Table
    starts: Sequence[EngineStart]


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
        equals: which requests; servers are told of whole.
    """
    known = [name for name in columns if name in REQUEST_COLUMNS]
    return Evidence(
        requests=request_columns(engine, window, known, equals),
        engines=sample_table(engine, window),
        gpus=gpu_table(engine, window),
        starts=(
            *in_force(engine, window.from_unix_ns),
            *starts_between(engine, window.from_unix_ns, window.to_unix_ns),
        ),
    )
