"""Split one request's latency into parts, and name the requests that delayed it.

Pure. The parts sum to the end-to-end time. The delays sum to the seconds that the row attributes to
other requests' prefill. Nothing is estimated beyond what the row reports.
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
"""Instants have nanosecond resolution; a smaller difference is a rounding error."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where one request's time went."""

    parts_s: Mapping[str, float]
    """Seconds by part of `diagnosis.latency.parts.PARTS`, in order; empty parts are left out."""
    delayed_by: Sequence[Delayer]
    """Largest delay first. `row` is the position in the requests given."""


def account(requests: Requests, victim: int, most: int = 10) -> Account:
    """Account for one request.

    An answer that was cut short is accounted for as well: its waiting did happen.

    Args:
        requests: the requests that shared its engine at that time, including the request itself.
        victim: its position in `requests`.
        most: the largest number of delayers to return.
    """
    alone = requests.rows(np.array([victim]))
    labels = {name: alone.labels[name] for name in alone.labels if name != "outcome"}
    itself = Requests(alone.received_unix_ns, alone.numbers, labels)
    split = split_s(itself, Metric.E2E)[0]
    # The remainder counts as delivery only where delivery was measured.
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
