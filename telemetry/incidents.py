"""An incident: a stretch of time in which an objective's error budget burned too fast."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident. Exact numbers are stored as text. `simulated` is true if only simulated
    requests caused the incident. None, in old rows, means false."""

    slo: str
    severity: str
    fired_unix_s: int
    began_unix_s: int
    last_unix_s: int
    ended_unix_s: int | None
    peak_unix_s: int
    peak_burn: str
    budget_spent: str | None
    simulated: bool | None = None
