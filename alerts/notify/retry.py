"""Decide when to retry a notification, and when to give up. Pure.

The back-off starts at 5 s and doubles up to 5 min. Each wait is then shortened by a random share of
at most half.
"""

from typing import Final

FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
GIVE_UP_S: Final = 6 * 3600
"""After this time, a message is not retried any more, because a later page would not help."""


def delay_s(attempts: int, chance: float, retry_after_s: float | None = None) -> float:
    """The seconds to wait before the next attempt.

    Args:
        attempts: number of failed attempts, 1 or more.
        chance: a random number in [0, 1).
    """
    doubled = min(LONGEST_S, FIRST_S * 2.0 ** min(attempts - 1, 16))
    return max(doubled * (1 - chance / 2), retry_after_s or 0.0)
