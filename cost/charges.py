"""Sum the billed seconds and weighted tokens of each replica and hour. Pure.

A cell is the sum of the requests with the same labels in one hour.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cost.replica_hours import Key, ReplicaHours
from cost.weights import BY_PRICE, TokenWeights
from telemetry.billing_data import BillingCells, BoolArray
from telemetry.counter_series import FloatArray
from telemetry.requests import Outcome

LOST = (Outcome.ABORT.value, Outcome.ERROR.value)
"""Outcomes of requests whose responses were not delivered."""


class Charge(NamedTuple):
    """The seconds and the tokens for which the requests of one replica in one hour are billed."""

    requests: int = 0
    ledger: bool = False
    billed_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0
    """The part of `billed_s` for requests whose responses were not delivered."""
    weight: float = 0.0
    lost_weight: float = 0.0


class WeighedTokens(NamedTuple):
    """The weighted tokens of each cell: (cells,). A token's weight is its relative cost
    (`cost.weights`)."""

    input: FloatArray
    output: FloatArray


def weighed_tokens(
    cells: BillingCells, hours: ReplicaHours, weights: Mapping[Key, TokenWeights]
) -> WeighedTokens:
    """The total weight of each cell's input tokens and of its output tokens."""
    of_key = [weights.get(key, BY_PRICE) for key in hours.keys]
    uncached, cached, output = (
        np.array([getattr(each, name) for each in of_key], float)[hours.which]
        for name in ("uncached", "cached", "output")
    )
    hits = cells.sums["cached_tokens"]
    computed = np.maximum(cells.sums["prompt_tokens"] - hits, 0.0)
    return WeighedTokens(uncached * computed + cached * hits, output * cells.sums["output_tokens"])


def are_lost(cells: BillingCells) -> BoolArray:
    """Whether the responses to each cell's requests were not delivered: (cells,)."""
    place = list(cells.by).index("outcome")
    return np.array([labels[place] in LOST for labels in cells.labels], bool)[cells.group]


def charges_of(
    cells: BillingCells, hours: ReplicaHours, weighed: WeighedTokens
) -> Sequence[Charge]:
    """The charges in the order of `hours.keys`."""
    lost = are_lost(cells)
    billed_s = cells.sums["billed_s"]
    weight = weighed.input + weighed.output
    known = (cells.reported["billed_s"] != 0) | (billed_s != 0)
    columns = (
        hours.sum(cells.requests).astype(np.int64),
        hours.sum(known) > 0,
        hours.sum(billed_s),
        hours.sum(cells.sums["wasted_s"]),
        hours.sum(billed_s * lost),
        hours.sum(weight),
        hours.sum(weight * lost),
    )
    return [Charge(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]
