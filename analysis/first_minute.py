"""Report what share of the simulated past is stored, in the first minute of
`tailspan up --simulate`.

Until the past is stored and evaluated, a page would show incomplete data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy import Engine

from store.alerting.incidents import evaluated_until
from store.queries import newest_request_unix_ns

ENVIRONMENT_KEY: Final = "TAILSPAN_SIMULATED_PAST"
"""The variable with the time range of the simulated past, as FROM/TO in unix seconds."""
GIVE_UP_S: Final = 120
"""Maximum number of seconds to wait, from the start of the simulation."""
RECENT_S: Final = 45
"""Maximum age in seconds of the newest request and of the newest evaluation."""

_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class FirstMinute:
    """A simulated past, and the objectives to evaluate for it."""

    from_unix_s: int
    to_unix_s: int
    """The end of the past, which is when the simulation started."""
    slos: Sequence[str]
    """The objectives that must have been evaluated."""

    @classmethod
    def of(cls, environment: Mapping[str, str], slos: Sequence[str]) -> Self | None:
        """Return the past of the simulated fleet, or None if this process has no simulated fleet.

        Raises:
            ValueError: the variable is not FROM/TO in unix seconds.
        """
        text = environment.get(ENVIRONMENT_KEY)
        if not text:
            return None
        first, _, last = text.partition("/")
        return cls(int(first), int(last), slos)


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """The progress while the past is being stored."""

    past_s: int
    arrived_ratio: float
    """The share of the past that is stored, in [0, 1]."""


def backfill_progress(
    engine: Engine, question: FirstMinute, now_unix_ns: int
) -> BackfillProgress | None:
    """The progress of storing the past, or None if all of it is stored and evaluated. Also None if
    the simulation started more than `GIVE_UP_S` seconds ago."""
    if now_unix_ns > (question.to_unix_s + GIVE_UP_S) * _NS:
        return None
    past_s = question.to_unix_s - question.from_unix_s
    newest_ns = newest_request_unix_ns(engine) or 0
    arrived_s = min(max(newest_ns / _NS - question.from_unix_s, 0.0), past_s)
    recent_s = question.to_unix_s - RECENT_S
    evaluated = all((evaluated_until(engine, slo) or 0) >= recent_s for slo in question.slos)
    if newest_ns >= recent_s * _NS and evaluated:
        return None
    return BackfillProgress(past_s, arrived_s / past_s)
