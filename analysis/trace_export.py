"""Requests of a window as arrivals, for a trace file. Prompts, tenants and ids are not read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from replay.arrivals import Arrivals
from store.columns.request_columns import in_parts, request_columns
from store.queries import Window

PART_REQUESTS: Final = 100_000
"""Requests that are read at a time, so that a long window needs little memory."""

_COLUMNS: Final = ("received_unix_ns", "prompt_tokens", "output_tokens")
_NS: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class ExportedPart:
    """A part of a window's requests, in order of receipt."""

    arrivals: Arrivals
    """`received_s` counts from the start of the window."""
    left_out: int
    """Requests whose prompt or answer tokens are unknown or 0, such as rejected ones."""


def exported_parts(
    engine: Engine, window: Window, equals: Mapping[str, str | None]
) -> Iterator[ExportedPart]:
    """Yield the requests of a window in parts.

    Args:
        engine: from `open_database`.
        window: range of the time of receipt.
        equals: labels of the requests; see `queries.request_table`.

    Raises:
        ValueError: an unknown label.
    """
    for part in in_parts(engine, window, PART_REQUESTS):
        table = request_columns(engine, part, _COLUMNS, equals)
        if table.num_rows:
            yield _exported(table, window.from_unix_ns)


def _exported(table: pa.Table, from_unix_ns: int) -> ExportedPart:
    both = pc.and_kleene(
        pc.greater_equal(table["prompt_tokens"], 1), pc.greater_equal(table["output_tokens"], 1)
    )
    kept = table.filter(both)
    received_ns, prompt_tokens, output_tokens = (
        kept[name].to_numpy().astype(np.int64) for name in _COLUMNS
    )
    arrivals = Arrivals(
        received_s=(received_ns - from_unix_ns) / _NS,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )
    return ExportedPart(arrivals, table.num_rows - kept.num_rows)
