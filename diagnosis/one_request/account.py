"""One request's own account: what its time went into, and who took it.

Pure. The parts sum to its end-to-end time, and what its delayers cost it to the seconds that
others' prefill took of it: nothing is estimated that the row does not tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.inputs.requests import Requests
from diagnosis.latency.parts import PART_INDEX, PARTS, split_s
from diagnosis.one_request.delayers import Delayer, delayers
from diagnosis.question import Metric

ROUNDING_S: Final = 1e-9
"""Instants are told to the nanosecond; less is what rounding left."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where one request's time went."""

    parts_s: Mapping[str, float]
    """Seconds by part of `diagnosis.latency.parts.PARTS`, in order; empty parts are left out."""
    delayed_by: Sequence[Delayer]
    """Costliest first; `row` is the place among the requests given."""


def account(requests: Requests, victim: int, most: int = 10) -> Account:
    """Account for one request.

    An answer that was cut short is accounted for as well: what it waited for did happen.

    Args:
        requests: those that shared its engine while it was there, itself among them.
        victim: its place among them.
        most: delayers, at most.
    """
    alone = requests.rows(np.array([victim]))
    labels = {name: alone.labels[name] for name in alone.labels if name != "outcome"}
    itself = Requests(alone.received_unix_ns, alone.numbers, labels)
    split = split_s(itself, Metric.E2E)[0]
    # The rest of a whole is delivery only as far as somebody saw it delivered.
    delivery_s = float(np.nan_to_num(itself.number("delivery_s")[0]))
    beyond_s = max(0.0, float(split[PART_INDEX["delivery"]]) - delivery_s)
    split[PART_INDEX["delivery"]] -= beyond_s
    split[PART_INDEX["unsplit"]] += beyond_s
    return Account(
        {
            part: float(seconds)
            for part, seconds in zip(PARTS, split, strict=True)
            if abs(seconds) >= ROUNDING_S
        },
        delayers(requests, victim, most),
    )
