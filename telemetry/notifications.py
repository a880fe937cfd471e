"""A notification about an incident, for one channel."""

from dataclasses import dataclass
from enum import StrEnum


class Delivery(StrEnum):
    """The delivery state."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Notification:
    """One row of the outbox. `next_unix_s` is the time of the next attempt. `failures` counts the
    failed attempts since the last delivery. `problem` describes the latest failure. `claimed_term`
    is the lease's token in the latest attempt."""

    slo: str
    severity: str
    fired_unix_s: int
    transition: str
    channel: str
    message: str
    created_unix_s: int
    state: str = Delivery.PENDING
    failures: int = 0
    next_unix_s: int | None = None
    delivered_unix_s: int | None = None
    problem: str | None = None
    claimed_term: int | None = None

    @property
    def incident(self) -> tuple[str, str, int]:
        """The key of the incident."""
        return (self.slo, self.severity, self.fired_unix_s)
