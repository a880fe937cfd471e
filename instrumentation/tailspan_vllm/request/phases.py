"""Splits a request's end-to-end time into phases that sum to it.

Pure. A phase begins at its own instant and ends at the next one reached. The phase in which a
request ended early runs to `delivered`; the phases after it never began and are None, not 0.
"""

from typing import NamedTuple


class Phases(NamedTuple):
    """Seconds in each phase; None where the phase never began."""

    frontend_s: float | None
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    delivery_s: float | None


def split(
    received: float,
    queued: float | None,
    scheduled: float | None,
    first_token: float | None,
    last_token: float | None,
    delivered: float,
) -> Phases:
    """Split received→delivered at the instants that were reached.

    Args: readings of one clock, in seconds; those that are not None are non-decreasing.
    Returns: phases whose sum is delivered − received.
    """
    starts = [received]
    for instant in (queued, scheduled, first_token, last_token):
        if instant is None:
            break
        starts.append(instant)
    ends = [*starts[1:], delivered]
    reached = [end - start for start, end in zip(starts, ends, strict=True)]
    padded: list[float | None] = [*reached, *[None] * (5 - len(reached))]
    return Phases(*padded)
