"""The state of the SLOs. It is read once, so that all pages show the same numbers."""

from typing import NamedTuple

from alerts.evaluation.counting import EVALUATION_S
from analysis.over_time.time_bins import SECOND_NS
from analysis.slo_states import SloState, instant_s, slo_states
from ui.frame.context import Context
from ui.frame.read_cache import shared
from ui.kit.unreadable import store_errors


class SloReads(NamedTuple):
    """The states of the SLOs.

    Attributes:
        at_s: the instant of the states, in unix seconds.
        step: a number that changes every 15 s, or None when the range's data is complete. Other
            counts have this number in their cache key, so that they are as recent as the states.
    """

    states: tuple[SloState, ...]
    at_s: int
    step: int | None


def read_slos(context: Context) -> SloReads:
    """The states of the SLOs at the end of the range, from the cache if possible.

    Raises:
        Unreadable: the store does not respond.
    """
    engine, window, objectives = context.engine, context.window, context.objectives
    at_s = instant_s(window, context.now_unix_ns)
    step = None if context.settled else context.now_unix_ns // (EVALUATION_S * SECOND_NS)

    def read() -> tuple[SloState, ...]:
        with store_errors():
            return slo_states(engine, objectives.counted, window, at_s)

    return SloReads(
        shared(engine, ("slo states", window, at_s, step, objectives.key), read), at_s, step
    )
