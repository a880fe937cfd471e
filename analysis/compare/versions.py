"""Find the version of vLLM that served each request.

The version that an engine reports at its start applies until the replica's next start.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analysis.compare.question import VERSION
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart
from telemetry.window import Window


def with_versions(
    engine: Engine, rows: pa.Table, window: Window, at: str = "received_unix_ns"
) -> pa.Table:
    """Add the column `version` to requests or engine samples.

    Args:
        rows: with `replica` and the column `at`, within the window.
    """
    return rows.append_column(VERSION, versions_of(rows, _starts(engine, window), at))


def versions_in(engine: Engine, window: Window) -> list[str]:
    """Return the vLLM versions of the engines that may have served requests in a range, sorted."""
    return sorted({each.version for each in _starts(engine, window) if each.version})


def versions_of(
    rows: pa.Table, starts: Iterable[EngineStart], at: str = "received_unix_ns"
) -> pa.Array:
    """The version of each row's server at the time `at`, or null if it is unknown. Pure.

    A row before a replica's first known start has the version of that start.
    """
    of_replica: dict[str, list[EngineStart]] = defaultdict(list)
    for start in sorted(starts, key=lambda each: each.at_unix_ns):
        of_replica[start.replica].append(start)
    names = np.asarray(rows["replica"].to_pylist(), dtype=object)
    at_ns = np.asarray(rows[at].to_numpy())
    found = np.full(names.size, None, dtype=object)
    for replica, mine in of_replica.items():
        its = np.flatnonzero(names == replica)
        begun_ns = [each.at_unix_ns for each in mine]
        places = np.searchsorted(begun_ns, at_ns[its], side="right") - 1
        versions = np.asarray([each.version for each in mine], dtype=object)
        found[its] = versions[np.maximum(places, 0)]
    return pa.array(found, pa.string())


def _starts(engine: Engine, window: Window) -> list[EngineStart]:
    return [
        *in_force(engine, window.from_unix_ns),
        *starts_between(engine, window.from_unix_ns + 1, window.to_unix_ns),
    ]
