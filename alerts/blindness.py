"""Find blind objectives, which count too few events to alert. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from alerts.burnrate import EventCounts

HIDING: Final = ("unknown", "late")
"""Reasons for excluding requests that indicate a fault in the telemetry."""

LOOKBACK_S: Final = 3_600
"""The check covers the last `LOOKBACK_S` seconds."""

EXPECTED: Final = 100
"""An objective is blind if it selects none of this many requests. An objective on 5 % of the
traffic selects none of 100 requests with a chance of 0.95¹⁰⁰ = 1 in 170."""

MIN_LEFT_OUT: Final = 5
"""Minimum number of excluded requests. Fewer requests may be excluded by chance."""

NONE_SELECTED: Final = "none_selected"
NO_PROBE: Final = "no_probe"


class BlindnessReason(NamedTuple):
    """Why an objective is blind, and how to correct it."""

    why: str
    remedy: str


REASONS: Final[Mapping[str, BlindnessReason]] = {
    NONE_SELECTED: BlindnessReason(
        "no request matches its `where`. Perhaps a label was renamed, or the servers do not"
        " report a field that `where` compares (for example, vLLM's native spans have no"
        " `streamed`)",
        "compare its `where` with the values in `tailspan requests --format json`, and correct"
        " it; or install the plugin in vLLM's environment, which reports every field",
    ),
    NO_PROBE: BlindnessReason(
        "probes arrive, but none of them counts. Perhaps `where` matches no probe, the probing"
        " budget of the day is spent, or every probe lacks a value that `good` compares. For"
        " example, an answer that contains only reasoning has no first content",
        "compare `where` and `good` with the results of `tailspan outside --format json`, and"
        " correct them",
    ),
    "unknown": BlindnessReason(
        "most requests lack a value that `good` compares. Perhaps the servers do not report it",
        "find the value that is null in `tailspan requests --format json`; then install the"
        " plugin in vLLM's environment, which reports every value, or remove the value from `good`",
    ),
    "late": BlindnessReason(
        "most requests are reported 5 min or more after they ended. Perhaps a clock is wrong, or"
        " a sender could not reach Tailspan for some time",
        "set the clocks by NTP (timedatectl, chronyc tracking); the clock checks of"
        " `tailspan doctor` name the sender",
    ),
}
"""Maps a key to a reason. The key is also the value of the alert's label `reason`."""


def blind_to_probes(counts: EventCounts, probes: int) -> str | None:
    """The key in `REASONS` of the reason why an objective on probes is blind, or None."""
    return NO_PROBE if probes >= MIN_LEFT_OUT and not counts.events else None


def blind_because(counts: EventCounts, excluded: Mapping[str, int], requests: int) -> str | None:
    """The key in `REASONS` of the reason why an objective is blind, or None.

    Args:
        excluded: number of excluded requests for each reason.
        requests: number of all requests, selected or not.
    """
    for reason in HIDING:
        left_out = excluded.get(reason, 0)
        if left_out >= MIN_LEFT_OUT and left_out > counts.events:
            return reason
    if requests >= EXPECTED and not counts.events and not sum(excluded.values()):
        return NONE_SELECTED
    return None
