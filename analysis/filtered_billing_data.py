"""Select the data of a bill that belongs to one replica. Pure."""

from dataclasses import replace

from telemetry.billing_data import BillingData


def of_replica(read_: BillingData, replica: str | None) -> BillingData:
    """Return the engines, GPUs and requests of one replica. If the replica is None, return all of
    them."""
    if replica is None:
        return read_
    return replace(
        read_,
        engines=read_.engines.of_replica(replica),
        gpus=read_.gpus.of_replica(replica),
        cells=read_.cells.at(read_.cells.have({"replica": replica})),
        starts=[each for each in read_.starts if each.replica == replica],
    )
