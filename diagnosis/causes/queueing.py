"""How detectors claim what waited: by the driver that each kind of waiting is blamed on.

Pure.
"""

from typing import Final

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.requests import FloatArray

OF_SEATS: Final = (
    *("queue_seats", "queue_unsplit"),
    *("prefill_others_decode", "decode_others_decode"),
)
"""What more sequences at a time bring: a wait for a place, and longer steps for those in one."""

OF_PREFILL: Final = ("queue_budget", "prefill_others_prefill", "decode_others_prefill")
"""What more prefill brings: a wait for a share of the step, and for others' in it."""

OF_STEP: Final = ("handoff", "queue_step")
"""What longer steps bring: the engine looks at what came only when the step under way is over."""


def waiting(case: Case, *drivers: str) -> dict[str, float | FloatArray]:
    """Weights of the queue's and of others' prefill's terms that these drivers brought about."""
    weights: dict[str, float | FloatArray] = {}
    for terms, blamed in (
        (OF_SEATS, blame.for_seats(case)),
        (OF_PREFILL, blame.for_prefill(case)),
        (OF_STEP, blame.for_step(case)),
    ):
        share = sum(blamed.get(driver, 0.0) for driver in drivers)
        if share:
            weights |= dict.fromkeys(terms, share)
    return weights
