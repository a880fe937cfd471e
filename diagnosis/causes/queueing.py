"""How detectors claim what waited: by the driver that each kind of waiting is blamed on.

Pure.
"""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.requests import FloatArray


def waiting(case: Case, *drivers: str) -> dict[str, float | FloatArray]:
    """Weights of the queue's and of others' prefill's terms that these drivers brought about."""
    seats, prefill = blame.for_seats(case), blame.for_prefill(case)
    by_seats = sum(seats.get(driver, 0.0) for driver in drivers)
    by_prefill = sum(prefill.get(driver, 0.0) for driver in drivers)
    weights: dict[str, float | FloatArray] = {}
    if by_seats:
        weights |= {"queue_seats": by_seats, "queue_unsplit": by_seats}
    if by_prefill:
        weights |= {
            "queue_budget": by_prefill,
            "queue_step": by_prefill,
            "prefill_others_prefill": by_prefill,
            "decode_others_prefill": by_prefill,
        }
    return weights
