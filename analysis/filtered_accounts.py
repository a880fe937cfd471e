"""Filter the accounts of engines and requests. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from telemetry.accounts import Accounts, Cells


def of_replica(read_: Accounts, replica: str | None) -> Accounts:
    """Return the engines, GPUs and requests of one replica, or of all replicas for None."""
    if replica is None:
        return read_
    return replace(
        read_,
        engines=read_.engines.of_replica(replica),
        gpus=read_.gpus.of_replica(replica),
        cells=cells_of(read_.cells, {"replica": replica}),
        starts=[each for each in read_.starts if each.replica == replica],
    )


def cells_of(cells: Cells, equals: Mapping[str, str | None]) -> Cells:
    """Return the cells whose requests have these labels."""
    return cells.at(cells.have(equals))
