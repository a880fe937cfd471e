"""Find objectives that can never alert, because they count too few requests or none. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from alerts.burnrate import Counts

HIDING: Final = ("unknown", "late")
"""Reasons for leaving out a request that are faults of the telemetry and not of the request."""

LOOKED_AT_S: Final = 3_600
"""The check uses the counts of this many seconds before now."""

EXPECTED: Final = 100
"""An objective that selects none of at least this many requests is blind. By chance, an objective
on 5 % of the traffic selects none of 100 requests once in 170 times (0.95 to the power of 100)."""

LEAST_LEFT_OUT: Final = 5
"""Minimum number of excluded requests. A smaller number may be chance. The low-traffic guard of
`policies/` has the same minimum for bad requests."""

NONE_SELECTED: Final = "none_selected"


class Reason(NamedTuple):
    """The reason why an objective is blind, and the action that corrects it."""

    why: str
    remedy: str


REASONS: Final[Mapping[str, Reason]] = {
    NONE_SELECTED: Reason(
        "no request matches its `where`. A value that it asks for may be unknown for this source"
        " of spans (vLLM's native spans have no `streamed`), or a label was renamed",
        "compare its `where` with the values of `tailspan requests --format json`, and correct it;"
        " or install the instrumentation beside vLLM, which sends every value",
    ),
    "unknown": Reason(
        "most requests lack a value that `good` needs. This source of spans may not send it",
        "find the value that is null in `tailspan requests --format json`; install the"
        " instrumentation beside vLLM, which sends every value, or leave the value out of `good`",
    ),
    "late": Reason(
        "most requests are reported 5 min or more after they ended. The clock of the server or"
        " of Tailspan is wrong, or a sender is cut off",
        "set the clocks by NTP (timedatectl, chronyc tracking); the clock checks of"
        " `tailspan doctor` name the sender",
    ),
}
"""Reasons by key. The alert's label and the JSON of `tailspan slo status` contain the key."""


def blind_because(counts: Counts, excluded: Mapping[str, int], requests: int) -> str | None:
    """Return the reason why an objective is blind; None if it is not blind.

    Args:
        counts: events of one window.
        excluded: requests left out in the same window, by reason.
        requests: all requests of the same window, selected by the objective or not.

    Returns:
        A key of `REASONS`.
    """
    for reason in HIDING:
        left_out = excluded.get(reason, 0)
        if left_out >= LEAST_LEFT_OUT and left_out > counts.events:
            return reason
    if requests >= EXPECTED and not counts.events and not sum(excluded.values()):
        return NONE_SELECTED
    return None
