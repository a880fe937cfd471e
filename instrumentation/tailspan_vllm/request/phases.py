"""Splits a request's end-to-end time into phases that sum to it. Pure.

A phase lasts until the next timestamp that the request reached. The last phase lasts until
`delivered`. Phases after the last phase are None, not 0.
"""

from typing import NamedTuple


class Phases(NamedTuple):
    """Seconds in each phase, or None for a phase that never began."""

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
    """Split the time into phases. Timestamps must not decrease. A timestamp that was not reached is
    None."""
    if (
        queued is not None
        and scheduled is not None
        and first_token is not None
        and last_token is not None
    ):
        return Phases(
            queued - received,
            scheduled - queued,
            first_token - scheduled,
            last_token - first_token,
            delivered - last_token,
        )
    starts = [received]
    for instant in (queued, scheduled, first_token, last_token):
        if instant is None:
            break
        starts.append(instant)
    ends = [*starts[1:], delivered]
    reached = [end - start for start, end in zip(starts, ends, strict=True)]
    padded: list[float | None] = [*reached, *[None] * (5 - len(reached))]
    return Phases(*padded)
