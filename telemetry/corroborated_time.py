"""A clock for alerts and retention that detects jumps of the system clock.

It is the system clock, unless the timestamps of senders contradict the system clock. NTP, a user or
a paused virtual machine can cause a jump of the system clock. After a jump there are two
candidates. The first candidate is the system clock. The second is the held time, which continues
with the time since boot. The senders' timestamps decide between the two candidates:
- A sender does not vote if its timestamps jumped together with the system clock, because it uses
  the same clock.
- Any other sender votes for the candidate nearer to its timestamps. The majority decides
  immediately.
- Without a vote, the held time is used for `STEPOUT_NS`. After that, the system clock is used.

At the start of Tailspan, the system clock is compared with the newest stored data. The system clock
is in doubt if it is behind this data, or more than `GAP_NS` ahead of it. The second candidate is
then a time that continues from the newest stored data. It is used only if the timestamps of most
senders are nearer to it. Deletion cannot be undone, so it uses `deletable_unix_ns`. This time never
goes back. It stops while it is ahead of the current time. It advances at most `PACE` times as fast
as the time since boot. A wrong clock deletes at most one additional minute of data per minute.

Thread-safe.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from telemetry.engines import MAX_TRACKED

SECOND_NS: Final = 10**9
STEP_NS: Final = 5 * SECOND_NS
"""Jumps shorter than this are always accepted. It is a third of the time between two evaluations of
the alerts. NTP's corrections are smaller (chrony's `makestep 1`, ntpd's 128 ms)."""
STEPOUT_NS: Final = 300 * SECOND_NS
"""If no sender votes, a jump is accepted after this time, as in ntpd (`tinker stepout`)."""
WITNESS_NS: Final = 3_600 * SECOND_NS
"""A sender can vote for this long after its last message."""
GAP_NS: Final = 3_600 * SECOND_NS
"""At the start, the system clock may be this much ahead of the newest stored data."""
BEHIND_NS: Final = 60 * SECOND_NS
"""At the start, the system clock may be this much behind the newest stored data. A stored timestamp
can be up to a second later than its arrival (collector/rows/sender_clocks.py)."""
PACE: Final = 2
"""Maximum speed of `deletable_unix_ns`, as a multiple of real time. It exceeds 1, so that
`deletable_unix_ns` can catch up after a stop."""
MAX_SENDERS: Final = MAX_TRACKED


def since_boot_ns() -> int:
    """Nanoseconds since boot. On Linux they include suspended time."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class _Sender:
    offset_ns: int
    """Unix time minus time since boot, from the newest timestamp of the last message and its
    arrival."""
    received_ns: int
    before_ns: int | None = None
    """The offset before the jump, or None if the sender's first message arrived after the jump."""
    since_jump: bool = True


class CorroboratedClock:
    """A clock that returns the current time in unix nanoseconds."""

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
        # Both candidates are offsets: unix time minus time since boot.
        self._system_ns = self._held_ns = system_unix_ns() - self._looked_ns
        self._follows_system = True
        self._at_start = False
        self._newest_unix_ns = 0
        """The newest stored timestamp at the start, minus `BEHIND_NS`. A sender behind it has a
        wrong clock."""
        self._jumped_ns = 0
        self._deletable_unix_ns = self._looked_ns + self._system_ns

    def __call__(self) -> int:
        """Return the current time."""
        with self._lock:
            self._update()
            return self._looked_ns + self._offset_ns

    @property
    def ahead_ns(self) -> int:
        """The nanoseconds by which the system clock is ahead of this clock."""
        with self._lock:
            self._update()
            return self._system_ns - self._offset_ns

    @property
    def deletable_unix_ns(self) -> int:
        """The time from which retention computes the age of rows."""
        with self._lock:
            self._update()
            return self._deletable_unix_ns

    def begin(self, newest_unix_ns: int | None, deletable_unix_ns: int | None) -> None:
        """Compare the clock with the stored data. Call this once, before any deletion."""
        with self._lock:
            self._update()
            now_unix_ns = self._looked_ns + self._system_ns
            last_unix_ns = newest_unix_ns if deletable_unix_ns is None else deletable_unix_ns
            self._deletable_unix_ns = (
                now_unix_ns if last_unix_ns is None else min(now_unix_ns, last_unix_ns)
            )
            if newest_unix_ns is not None and not self._continues(newest_unix_ns):
                self._held_ns = newest_unix_ns - self._looked_ns
                self._newest_unix_ns = newest_unix_ns - BEHIND_NS
                self._at_start = True

    def record_message(self, sender: str, newest_unix_ns: int) -> None:
        """Record the newest uncorrected timestamp of a message that has just arrived from a named
        sender.

        Beyond `MAX_SENDERS`, a new sender replaces the sender that was silent for the longest time.
        While the clock is in doubt, a new sender is ignored instead.
        """
        with self._lock:
            self._update()
            offset_ns = newest_unix_ns - self._looked_ns
            known = self._senders.get(sender)
            if known is not None:
                known.offset_ns, known.received_ns, known.since_jump = (
                    offset_ns,
                    self._looked_ns,
                    True,
                )
                self._senders.move_to_end(sender)
            elif len(self._senders) < MAX_SENDERS or not self._uncorroborated:
                self._senders[sender] = _Sender(offset_ns, self._looked_ns)
                if len(self._senders) > MAX_SENDERS:
                    self._senders.popitem(last=False)
            if self._uncorroborated:
                self._decide()

    def shares(self, sender: str) -> bool:
        """Whether a sender uses the system clock. If it does, its timestamps jumped when the system
        clock jumped."""
        with self._lock:
            self._update()
            known = self._senders.get(sender)
            return (
                self._uncorroborated
                and known is not None
                and known.since_jump
                and self._clock_jumped(known)
            )

    @property
    def _uncorroborated(self) -> bool:
        return self._at_start or abs(self._system_ns - self._held_ns) > STEP_NS

    @property
    def _offset_ns(self) -> int:
        return self._system_ns if self._follows_system else self._held_ns

    def _continues(self, newest_unix_ns: int) -> bool:
        return -BEHIND_NS <= self._looked_ns + self._system_ns - newest_unix_ns <= GAP_NS

    def _update(self) -> None:
        uncorroborated, before_ns = self._uncorroborated, self._system_ns
        elapsed_ns = self._since_boot_ns() - self._looked_ns
        self._looked_ns += elapsed_ns
        self._system_ns = self._system_unix_ns() - self._looked_ns
        if abs(self._system_ns - before_ns) > STEP_NS:
            self._jump(before_ns, uncorroborated)
        if self._at_start:
            if self._continues(self._looked_ns + self._held_ns):
                self._follow_system()
        elif abs(self._system_ns - self._held_ns) <= STEP_NS:
            self._follow_system()
        if self._uncorroborated:
            self._decide()
        present_unix_ns = self._looked_ns + min(self._system_ns, self._offset_ns)
        self._deletable_unix_ns = max(
            self._deletable_unix_ns,
            min(present_unix_ns, self._deletable_unix_ns + PACE * elapsed_ns),
        )

    def _jump(self, before_ns: int, uncorroborated: bool) -> None:
        self._jumped_ns = self._looked_ns
        if not uncorroborated:
            self._held_ns = before_ns
            self._follows_system = False
        for each in self._senders.values():
            each.since_jump = False
            if not uncorroborated:
                each.before_ns = each.offset_ns

    def _follow_system(self) -> None:
        self._held_ns = self._system_ns
        self._follows_system = True
        self._at_start = False

    def _clock_jumped(self, sender: _Sender) -> bool:
        if sender.before_ns is None:
            return False
        moved_ns = sender.offset_ns - sender.before_ns
        return abs(moved_ns - (self._system_ns - self._held_ns)) < abs(moved_ns)

    def _decide(self) -> None:
        against, witnesses = [], 0
        for each in self._senders.values():
            if not each.since_jump or self._looked_ns - each.received_ns > WITNESS_NS:
                continue
            if self._at_start and self._looked_ns + each.offset_ns < self._newest_unix_ns:
                continue  # the sender's clock is wrong
            if self._at_start or (each.before_ns is not None and not self._clock_jumped(each)):
                witnesses += 1
                to_held_ns = abs(each.offset_ns - self._held_ns)
                if to_held_ns <= abs(each.offset_ns - self._system_ns):
                    against.append(each.offset_ns)
        # If the votes are equal, the system clock is used at the start, and the held time after a
        # jump.
        if against and 2 * len(against) >= witnesses + self._at_start:
            self._follows_system = False
            if self._at_start:
                self._held_ns = median_low(against)
        elif witnesses or (not self._at_start and self._looked_ns - self._jumped_ns > STEPOUT_NS):
            self._follow_system()
