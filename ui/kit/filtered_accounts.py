"""The accounts of engines and requests that pass filters. Pure."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from telemetry.accounts import Accounts, Cells


def of_replica(read_: Accounts, replica: str | None) -> Accounts:
    """Return only a replica's engines, GPUs and requests; all of them if none is named."""
    if replica is None:
        return read_
    return replace(
        read_,
        engines=read_.engines.of_replica(replica),
        gpus=read_.gpus.of_replica(replica),
        cells=cells_of(read_.cells, {"replica": replica}),
        starts=[each for each in read_.starts if each.replica == replica],
    )


def cells_of(cells: Cells, equals: Mapping[str, str]) -> Cells:
    """Return the cells of requests that have these labels."""
    wanted = [(list(cells.by).index(name), value) for name, value in equals.items()]
    fits = [all(labels[at] == value for at, value in wanted) for labels in cells.labels]
    ours = np.array(fits, bool)[cells.group]
    return replace(
        cells,
        group=cells.group[ours],
        hour_unix_s=cells.hour_unix_s[ours],
        requests=cells.requests[ours],
        sums={name: each[ours] for name, each in cells.sums.items()},
        told={name: each[ours] for name, each in cells.told.items()},
    )
