"""The partition of a request's life into phases that sum to its end-to-end time.

Pure. Instants in, durations out. A phase begins at its own instant and ends at the next
one reached; the phase in which a request ended early runs to `delivered`, and the phases
after it are None: they never began, which is not the same as taking no time.
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

    Args: readings of one clock, in seconds, non-decreasing where not None.
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
