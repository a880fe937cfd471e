"""The time that alerts and retention follow: the system clock, as long as nothing contradicts it.

The system clock can jump: NTP corrects it, somebody sets it, a virtual machine is paused. Time
since boot does not jump. Where the two disagree, there are two candidates: the time before the
jump, continued by the time since boot ("held"), and the system clock ("system"). Senders decide,
because their clocks are other clocks:

- A sender whose instants moved with the system clock reads the same clock and proves nothing.
- A sender whose instants did not move is a witness. It votes for the candidate it is nearer to,
  and the majority decides at once.
- Without a witness the held time is kept for `STEPOUT_NS`, then the system clock is accepted.

So a jump that a witness contradicts is ignored for as long as it lasts, a jump without a
witness is accepted after five minutes, and a jump that ends leaves no trace. Suspending the
machine is no jump: the time since boot goes on.

At the start there is no time before. A clock that is more than `GAP_NS` ahead of all that is
stored, or behind it, may be right (after a long downtime) or wrong. The
system clock is followed, unless the majority of senders continues from what is stored.

Deleting cannot be undone, so it follows a slower clock, `deletable_unix_ns`. It never goes back,
stops while it is later than the present, and advances at most `PACE` times as fast as time since
boot. A wrong clock then deletes at most one minute too much for each minute that it is wrong, and
after a downtime of a week deleting has caught up a week later.

Pure but for what it remembers. Safe to use from any thread.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_low
from typing import Final

SECOND_NS: Final = 10**9
STEP_NS: Final = 5 * SECOND_NS
"""A smaller step is followed without question: it is a third of the evaluator's 15 s, and NTP
steps are below it (chrony's `makestep 1`, ntpd's 128 ms)."""
STEPOUT_NS: Final = 300 * SECOND_NS
"""ntpd, too, believes a large offset only after it lasted 300 s (`tinker stepout`)."""
WITNESS_NS: Final = 3_600 * SECOND_NS
"""How long a witness that fell silent still counts: a fleet without traffic sends no requests."""
GAP_NS: Final = 3_600 * SECOND_NS
"""A shorter downtime is an ordinary restart."""
BEHIND_NS: Final = 60 * SECOND_NS
"""Stored instants are never later than their arrival by more than a second (collector/clocks)."""
PACE: Final = 2
"""The smallest whole number that catches up at all."""
MOST_SENDERS: Final = 1_000
"""As many as the collector keeps clocks of."""


def since_boot_ns() -> int:
    """Nanoseconds since boot, suspended time included where the system counts it (Linux)."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class _Sender:
    """A sender's offset: its newest instant less the time since boot at which that arrived."""

    offset_ns: int
    heard_ns: int
    before_ns: int | None = None
    """The offset before the jump; None for a sender that is new since then."""
    since_jump: bool = True


class CorroboratedClock:
    """The present, in unix nanoseconds.

    Args:
        system_unix_ns: the system clock.
        since_boot_ns: a clock that never jumps.
    """

    def __init__(
        self,
        system_unix_ns: Callable[[], int] = time.time_ns,
        since_boot_ns: Callable[[], int] = since_boot_ns,
    ) -> None:
        self._system_unix_ns = system_unix_ns
        self._since_boot_ns = since_boot_ns
        self._lock = threading.Lock()
        self._senders: OrderedDict[str, _Sender] = OrderedDict()
        self._looked_ns = since_boot_ns()
        # Both candidates as offsets: unix time less time since boot.
        self._system_ns = self._held_ns = system_unix_ns() - self._looked_ns
        self._follows_system = True
        self._at_start = False
        """Whether the doubt is about the clock that we started with."""
        self._newest_unix_ns = 0
        """At the start: no sender whose clock is right sends anything older."""
        self._jumped_ns = 0
        self._deletable_unix_ns = self._looked_ns + self._system_ns

    def __call__(self) -> int:
        """The present."""
        with self._lock:
            self._look()
            return self._looked_ns + self._offset_ns

    @property
    def ahead_ns(self) -> int:
        """By how much the system clock is ahead of the present; 0 while it is followed."""
        with self._lock:
            self._look()
            return self._system_ns - self._offset_ns

    @property
    def deletable_unix_ns(self) -> int:
        """The present for what cannot be undone."""
        with self._lock:
            self._look()
            return self._deletable_unix_ns

    def begin(self, newest_unix_ns: int | None, deletable_unix_ns: int | None) -> None:
        """Take note of what is stored; once, before anything is deleted.

        Args:
            newest_unix_ns: the newest instant that is stored; None where nothing is.
            deletable_unix_ns: how far deleting had come at the last end; None if unknown.
        """
        with self._lock:
            self._look()
            now_unix_ns = self._looked_ns + self._system_ns
            last_unix_ns = newest_unix_ns if deletable_unix_ns is None else deletable_unix_ns
            self._deletable_unix_ns = (
                now_unix_ns if last_unix_ns is None else min(now_unix_ns, last_unix_ns)
            )
            if newest_unix_ns is not None and not self._continues(newest_unix_ns):
                self._held_ns = newest_unix_ns - self._looked_ns
                self._newest_unix_ns = newest_unix_ns - BEHIND_NS
                self._at_start = True

    def hear(self, sender: str, newest_unix_ns: int) -> None:
        """Take note of the newest instant in a message that has just arrived, as it was sent.

        Only for senders with a name of their own. With more than `MOST_SENDERS`, the one that was
        silent for longest is dropped, but none during a doubt.
        """
        with self._lock:
            self._look()
            offset_ns = newest_unix_ns - self._looked_ns
            known = self._senders.get(sender)
            if known is not None:
                known.offset_ns, known.heard_ns, known.since_jump = offset_ns, self._looked_ns, True
                self._senders.move_to_end(sender)
            elif len(self._senders) < MOST_SENDERS or not self._doubted:
                self._senders[sender] = _Sender(offset_ns, self._looked_ns)
                if len(self._senders) > MOST_SENDERS:
                    self._senders.popitem(last=False)
            if self._doubted:
                self._decide()

    def shares(self, sender: str) -> bool:
        """Whether a sender is seen to read the system clock: it jumped when that did."""
        with self._lock:
            self._look()
            known = self._senders.get(sender)
            return self._doubted and known is not None and known.since_jump and self._moved(known)

    @property
    def _doubted(self) -> bool:
        return self._at_start or abs(self._system_ns - self._held_ns) > STEP_NS

    @property
    def _offset_ns(self) -> int:
        return self._system_ns if self._follows_system else self._held_ns

    def _continues(self, newest_unix_ns: int) -> bool:
        """Whether the system clock fits what was stored last."""
        return -BEHIND_NS <= self._looked_ns + self._system_ns - newest_unix_ns <= GAP_NS

    def _look(self) -> None:
        """Compare the clocks, and decide which is followed."""
        doubted, before_ns = self._doubted, self._system_ns
        elapsed_ns = self._since_boot_ns() - self._looked_ns
        self._looked_ns += elapsed_ns
        self._system_ns = self._system_unix_ns() - self._looked_ns
        if abs(self._system_ns - before_ns) > STEP_NS:
            self._jump(before_ns, doubted)
        if self._at_start:
            if self._continues(self._looked_ns + self._held_ns):
                self._follow_system()
        elif abs(self._system_ns - self._held_ns) <= STEP_NS:
            self._follow_system()
        if self._doubted:
            self._decide()
        present_unix_ns = self._looked_ns + min(self._system_ns, self._offset_ns)
        self._deletable_unix_ns = max(
            self._deletable_unix_ns,
            min(present_unix_ns, self._deletable_unix_ns + PACE * elapsed_ns),
        )

    def _jump(self, before_ns: int, doubted: bool) -> None:
        self._jumped_ns = self._looked_ns
        if not doubted:
            self._held_ns = before_ns
            self._follows_system = False
        for each in self._senders.values():
            each.since_jump = False
            if not doubted:
                each.before_ns = each.offset_ns

    def _follow_system(self) -> None:
        """End the doubt."""
        self._held_ns = self._system_ns
        self._follows_system = True
        self._at_start = False

    def _moved(self, sender: _Sender) -> bool:
        """Whether a sender's clock went along with the jump, rather than staying as it was."""
        if sender.before_ns is None:
            return False
        moved_ns = sender.offset_ns - sender.before_ns
        return abs(moved_ns - (self._system_ns - self._held_ns)) < abs(moved_ns)

    def _decide(self) -> None:
        against, witnesses = [], 0
        for each in self._senders.values():
            if not each.since_jump or self._looked_ns - each.heard_ns > WITNESS_NS:
                continue
            if self._at_start and self._looked_ns + each.offset_ns < self._newest_unix_ns:
                continue  # it does not continue from what is stored: its clock is behind
            if self._at_start or (each.before_ns is not None and not self._moved(each)):
                witnesses += 1
                to_held_ns = abs(each.offset_ns - self._held_ns)
                if to_held_ns <= abs(each.offset_ns - self._system_ns):
                    against.append(each.offset_ns)
        # At the start the system clock has the benefit of the doubt, after a jump it has not.
        if against and 2 * len(against) >= witnesses + self._at_start:
            self._follows_system = False
            if self._at_start:  # only their clocks cover the time from the newest row until now
                self._held_ns = median_low(against)
        elif witnesses or (not self._at_start and self._looked_ns - self._jumped_ns > STEPOUT_NS):
            self._follow_system()
