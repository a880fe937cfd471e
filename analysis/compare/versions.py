"""Find the version of vLLM that served each request.

The version that an engine reports at its start applies until the replica's next start.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analysis.compare.question import VERSION
from store.queries import Window
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart


def with_versions(engine: Engine, requests: pa.Table, window: Window) -> pa.Table:
    """Add the column `version` to requests.

    Args:
        requests: with `replica` and `received_unix_ns`, within the window.
    """
    return requests.append_column(VERSION, versions_of(requests, _starts(engine, window)))


def versions_in(engine: Engine, window: Window) -> list[str]:
    """Return the versions of the engines that could serve requests in a range, sorted."""
    return sorted({each.version for each in _starts(engine, window) if each.version})


def versions_of(requests: pa.Table, starts: Iterable[EngineStart]) -> pa.Array:
    """The version that served each request, or null if it is unknown. Pure.

    A request before a replica's first known start has the version of that start.
    """
    of_replica: dict[str, list[EngineStart]] = defaultdict(list)
    for start in sorted(starts, key=lambda each: each.at_unix_ns):
        of_replica[start.replica].append(start)
    names = np.asarray(requests["replica"].to_pylist(), dtype=object)
    received_ns = np.asarray(requests["received_unix_ns"].to_numpy())
    found = np.full(names.size, None, dtype=object)
    for replica, mine in of_replica.items():
        rows = np.flatnonzero(names == replica)
        begun_ns = [each.at_unix_ns for each in mine]
        places = np.searchsorted(begun_ns, received_ns[rows], side="right") - 1
        versions = np.asarray([each.version for each in mine], dtype=object)
        found[rows] = versions[np.maximum(places, 0)]
    return pa.array(found, pa.string())


def _starts(engine: Engine, window: Window) -> list[EngineStart]:
    return [
        *in_force(engine, window.from_unix_ns),
        *starts_between(engine, window.from_unix_ns + 1, window.to_unix_ns),
    ]
