"""Label requests and samples with their server: a replica, or one engine of a replica with several
engines.

Pure.

The engines of a data-parallel replica have separate queues, caches and steps. So explanations
compare engines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from diagnosis.inputs.requests import (
    SERVER,
    BoolArray,
    FloatArray,
    LabelColumn,
    Requests,
    with_columns,
)
from diagnosis.inputs.servers import EngineName, Samples, Servers

_MOSTLY: Final = 0.5
"""Minimum share of a replica's requests that have an engine number. If the share is smaller, the
replica is not divided into engines."""


def with_server_labels(requests: Requests, servers: Servers) -> tuple[Requests, Servers]:
    """Return the requests and the engine samples with the label `server`. If a replica is divided
    into engines, its requests without an engine number have no server."""
    names = _replicas_with_engines(requests, servers.engines)
    if not names:
        return requests, servers
    replica = requests.label("replica")
    of_requests = _labels(replica, requests.number("engine"), names)
    engines = servers.engines
    of_samples = _labels(engines.replica, engines.number("engine"), names)
    return (
        replace(requests, labels=with_columns(requests.labels, {SERVER: of_requests})),
        replace(
            servers,
            engines=replace(engines, server=of_samples),
            divided={each.server: each for each in names},
        ),
    )


def where_of(chosen: Sequence[str], divided: Mapping[str, EngineName]) -> dict[str, str]:
    """Return the labels that all these servers have: replica and engine, only replica, or none."""
    if len(chosen) == 1 and chosen[0] in divided:
        name = divided[chosen[0]]
        return {"replica": name.replica, "engine": str(name.engine)}
    replicas = replicas_of(chosen, divided)
    return {"replica": replicas[0]} if len(replicas) == 1 else {}


def replicas_of(chosen: Iterable[str], divided: Mapping[str, EngineName]) -> tuple[str, ...]:
    """Return the replicas of these servers, without duplicates, in the order of the servers."""
    return tuple(
        dict.fromkeys(divided[each].replica if each in divided else each for each in chosen)
    )


def _replicas_with_engines(requests: Requests, engines: Samples) -> list[EngineName]:
    replica, number = requests.label("replica"), requests.number("engine")
    numbered = np.isfinite(number)
    if not numbered.any():
        return []
    known: dict[str, set[int]] = {}
    for labels, column in ((replica, number), (engines.replica, engines.number("engine"))):
        for name, engine in _pairs(labels, column):
            known.setdefault(name, set()).add(engine)
    return [
        EngineName(name, engine)
        for name, found in sorted(known.items())
        if len(found) > 1 and _mostly(numbered, replica.is_value(name))
        for engine in sorted(found)
    ]


def _pairs(labels: LabelColumn, number: FloatArray) -> Iterator[tuple[str, int]]:
    rows = np.flatnonzero((labels.codes >= 0) & np.isfinite(number))
    if not rows.size:
        return
    pairs = np.unique(number[rows] * len(labels.values) + labels.codes[rows])
    for pair in pairs.astype(np.int64).tolist():
        engine, code = divmod(pair, len(labels.values))
        yield labels.values[code], engine


def _mostly(numbered: BoolArray, there: BoolArray) -> bool:
    return bool(there.any()) and float(numbered[there].mean()) > _MOSTLY


def _labels(replica: LabelColumn, number: FloatArray, names: Sequence[EngineName]) -> LabelColumn:
    """Return the server of each row: its replica, or its engine if the replica is divided."""
    values = (*replica.values, *(name.server for name in names))
    codes = replica.codes.copy()
    for divided in dict.fromkeys(name.replica for name in names):
        codes[replica.is_value(divided)] = -1
    for place, name in enumerate(names, len(replica.values)):
        codes[replica.is_value(name.replica) & (number == name.engine)] = place
    return LabelColumn(codes, values)
