"""When to retry a notification, and when to give up. Pure.

Exponential back-off: 5 s, doubled up to 5 min. Each wait is shortened by a random share of up to
half, so that senders retry at different times.
"""

from typing import Final

FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
GIVE_UP_S: Final = 6 * 3600
"""A page that arrives later would not help. The evaluator skips missed instants of this age too."""


def delay_s(attempts: int, chance: float, retry_after_s: float | None = None) -> float:
    """The seconds to wait before the next attempt.

    Args:
        attempts: number of failed attempts, 1 or more.
        chance: a random number in [0, 1).
        retry_after_s: the seconds that the receiver asks to wait, or None.
    """
    doubled = min(LONGEST_S, FIRST_S * 2.0 ** min(attempts - 1, 16))
    return max(doubled * (1 - chance / 2), retry_after_s or 0.0)
