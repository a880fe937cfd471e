"""Finds objectives that count no requests or too few: they would never alert. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from alerts.burnrate import Counts

HIDING: Final = ("unknown", "late")
"""Reasons for leaving a request out that are faults of the telemetry, not of the request."""

LOOKED_AT_S: Final = 3_600
"""The counts of the last hour decide."""

EXPECTED: Final = 100
"""Out of this many requests, at least one should be selected. An objective on 5 % of the traffic
would select none of them by chance once in 170 times (0.95 to the power of 100)."""

LEAST_LEFT_OUT: Final = 5
"""If fewer requests were left out, it may be chance, as with bad requests (`policies/`)."""

NONE_SELECTED: Final = "none_selected"


class Reason(NamedTuple):
    """Why an objective is blind, and what to do about it."""

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
        "most requests lack a value that decides. This source of spans may not send it",
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
"""By the reason's key, as it is in the alert's label and in the JSON of `tailspan slo status`."""


def blind_because(counts: Counts, excluded: Mapping[str, int], requests: int) -> str | None:
    """Return why an objective is blind; None if it is not.

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
