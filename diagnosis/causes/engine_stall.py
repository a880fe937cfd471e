"""The engine stopped for a moment, and all of its requests waited at the same time."""

from collections.abc import Mapping

import numpy as np

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.held_requests import adapters_are_loading
from diagnosis.evidence.slow_machines import steady_slowdown
from diagnosis.evidence.stalls import stalled_while_queued_s
from diagnosis.evidence.waits import OF_SEATS, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray

ID = "engine_stall"
SUMMARY = "the engine stopped for a moment: all of its requests waited at the same time"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the step time that the scheduled work does not explain (the stall).

    Also claim the time that requests wait during stalls."""
    if steady_slowdown(case) is not None or adapters_are_loading(case):
        return None
    stalled_s = stalled_while_queued_s(case)
    seats = wait_weights(case, drivers.STALL)
    places = {term: seats.get(term, 0.0) for term in OF_SEATS}
    seen = (
        case.grown_s("prefill_stall", "decode_stall") > 0
        or bool((stalled_s > 0).any())
        or any(np.max(share) > 0 for share in places.values())
    )
    before, now = case.rate("stall_s_total")
    # The engine may have stalled before the slow requests arrived. Only a replay can test this.
    more = now is not None and now > (before or 0.0)
    if not seen and not more:
        return None
    return Claim(
        cause=ID,
        weights=_weights(case, seats, stalled_s) if seen else {},
        evidence=[
            Evidence("stall time of the engine, seconds per second", before, now),
            Evidence("longest step in each second, s", *case.p99("longest_step_s")),
            Evidence("preemptions/s", *case.rate("preemptions_total")),
        ],
        levers=[
            Lever(
                "look for pauses of the process: garbage collection, paging, a debugger, a "
                "snapshot of the machine"
            ),
            Lever("reserve CPU cores for the engine's process"),
        ],
        where=case.where,
    )


def _weights(
    case: DiagnosisCase, seats: Mapping[str, float | FloatArray], stalled_s: FloatArray
) -> dict[str, float | FloatArray]:
    while_queued, while_handed = (
        np.minimum(stalled_s / np.maximum(np.nan_to_num(case.slow.number(waited)), 1e-3), 1.0)
        for waited in ("queue_s", "handoff_s")
    )
    return {
        **seats,
        "handoff": np.maximum(seats.get("handoff", 0.0), while_handed),
        # A request may arrive after the stall and wait behind a request that the stall delayed.
        # So also claim the waits in the queue.
        **{
            term: np.maximum(seats.get(term, 0.0), while_queued)
            for term in (*OF_SEATS, "queue_step", "queue_budget")
        },
        "prefill_stall": 1.0,
        "decode_stall": 1.0,
    }
