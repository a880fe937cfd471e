"""Split one request's latency into parts, and list the requests that delayed it.

Pure. The parts sum to the end-to-end time. The sums of the delays by other requests' prefills and
decodes come from the request's row. Only the division of these sums among the other requests is an
estimate.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.latency.parts import HELD_PARTS, PART_INDEX, PARTS, split_s
from diagnosis.one_request.delayers import Delayer, TenantDelay, delayers, tenant_delays
from diagnosis.question import Metric

ROUNDING_S: Final = 1e-9
"""Minimum length of a part. A shorter part is a rounding error, because instants have nanosecond
resolution."""


@dataclass(frozen=True, slots=True)
class LatencyAccount:
    """The parts of one request's latency, and the requests that delayed it."""

    parts_s: Mapping[str, float]
    """Seconds of each part, in the order of `diagnosis.latency.parts.PARTS`. Each reason for
    `queue_held` is a part of its own. The time without a known reason remains in `queue_held`.
    Parts of 0 s are omitted."""
    delayed_by: Sequence[Delayer]
    """The requests whose prefill delayed this request, largest delay first."""
    by_tenant: Sequence[TenantDelay] = ()
    """For each tenant, the delay by the prefills and decodes of its requests, largest delay first.
    The sums include all other requests, not only the requests in `delayed_by`."""


def account(requests: Requests, victim: int, most: int = 10) -> LatencyAccount:
    """Return the parts of one request's latency, and the requests that delayed it (delayers).

    A request with an incomplete response also has parts.

    Args:
        requests: the requests that ran on the same engine at that time, including the delayed
            request.
        victim: the index of the delayed request in `requests`.
        most: the largest number of delayers to return.
    """
    alone = requests.rows(np.array([victim]))
    labels = {name: alone.labels[name] for name in alone.labels if name != "outcome"}
    itself = Requests(alone.received_unix_ns, alone.numbers, labels)
    split = split_s(itself, Metric.E2E)[0]
    # Time without a phase counts as delivery, but at most the measured delivery time. The rest is
    # unsplit.
    delivery_s = float(np.nan_to_num(itself.number("delivery_s")[0]))
    beyond_s = max(0.0, float(split[PART_INDEX["delivery"]]) - delivery_s)
    split[PART_INDEX["delivery"]] -= beyond_s
    split[PART_INDEX["unsplit"]] += beyond_s
    return LatencyAccount(
        {
            part: seconds
            for part, seconds in _with_held_parts(itself, split)
            if abs(seconds) >= ROUNDING_S
        },
        delayers(requests, victim, most),
        tenant_delays(requests, victim),
    )


def _with_held_parts(itself: Requests, split: FloatArray) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each part. In the result, `queue_held` is only the held
    time that the reported reasons do not explain."""
    for part, seconds in zip(PARTS, split.tolist(), strict=True):
        left_s = seconds
        if part == "queue_held":
            for reason, column in HELD_PARTS.items():
                reason_s = min(left_s, float(np.nan_to_num(itself.number(column)[0])))
                left_s -= reason_s
                yield reason, reason_s
        yield part, left_s
