"""When to retry a notification, and when to give up. Pure.

Back-off: 5 s, doubled up to 5 min, shortened by a random share of up to half.
"""

from typing import Final

FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
GIVE_UP_S: Final = 6 * 3600
"""A later page would not help. The evaluator skips missed instants of this age too."""


def delay_s(attempts: int, chance: float, retry_after_s: float | None = None) -> float:
    """The wait before the next attempt.

    Args:
        attempts: failed ones, 1 or more.
        chance: a random number in [0, 1).
    """
    doubled = min(LONGEST_S, FIRST_S * 2.0 ** min(attempts - 1, 16))
    return max(doubled * (1 - chance / 2), retry_after_s or 0.0)
