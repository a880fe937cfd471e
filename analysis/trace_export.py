"""Convert the requests of a window to arrivals for a trace file.

Prompts, tenants and ids are not read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.prefix_ladders import prefixes_of
from replay.arrivals import Arrivals, Prefixes
from store.columns.request_columns import in_parts, request_columns
from store.queries import has_value
from telemetry.prefix_ladders import read_ladders
from telemetry.window import Window

PART_REQUESTS: Final = 500_000
"""Number of requests in a part. The export reads one part at a time, to save memory. A prefix
shared by several parts is exported once per part."""

_COLUMNS: Final = ("received_unix_ns", "prompt_tokens", "output_tokens")
_CACHE: Final = ("cached_tokens", "external_cached_tokens")
_NS: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class ExportedPart:
    """A part of a window's requests, in order of receipt."""

    arrivals: Arrivals
    """The arrivals. `received_s` is in seconds since the start of the window."""
    left_out: int
    """Number of requests that are left out because their prompt or output tokens are unknown or
    0."""
    without_ladder: int
    """Number of requests whose shared prefixes are unknown."""


def exported_parts(
    engine: Engine, window: Window, equals: Mapping[str, str | None]
) -> Iterator[ExportedPart]:
    """Yield the requests of a window in parts. Either all parts or none have prefixes.

    Raises:
        ValueError: an unknown label.
    """
    first_key = 0
    parts = in_parts(engine, window, PART_REQUESTS)
    with_prefixes = len(parts) > 1 and has_value(engine, window, "prefix_ladder", equals)
    for part in parts:
        table = request_columns(engine, part, (*_COLUMNS, *_CACHE, "prefix_ladder"), equals)
        if table.num_rows:
            found = _exported(table, window.from_unix_ns, first_key, with_prefixes)
            first_key = max(first_key, 1 + _last_key(found.arrivals.prefixes))
            yield found


def _exported(
    table: pa.Table, from_unix_ns: int, first_key: int, with_prefixes: bool
) -> ExportedPart:
    both = pc.and_kleene(
        pc.greater_equal(table["prompt_tokens"], 1), pc.greater_equal(table["output_tokens"], 1)
    )
    kept = table.filter(both)
    received_ns, prompt_tokens, output_tokens = (
        kept[name].to_numpy().astype(np.int64) for name in _COLUMNS
    )
    ladders = read_ladders(kept["prefix_ladder"].to_pylist())
    known = ladders.block_tokens > 0
    prefixes = None
    if with_prefixes or known.any():
        cached, external = (pc.fill_null(kept[name], 0).to_numpy() for name in _CACHE)
        prefixes, _ = prefixes_of(ladders, np.maximum(cached - external, 0).astype(np.int64))
        prefixes = replace(prefixes, keys=prefixes.keys + first_key)
    arrivals = Arrivals(
        received_s=(received_ns - from_unix_ns) / _NS,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        prefixes=prefixes,
    )
    return ExportedPart(arrivals, table.num_rows - kept.num_rows, int((~known).sum()))


def _last_key(prefixes: Prefixes | None) -> int:
    return -1 if prefixes is None else int(prefixes.keys.max(initial=-1))
