"""Time slices in PromQL: each slice is one event.

Prometheus evaluates a subquery at multiples of its step from unix time 0. The slices of
`alerts.slices` end at the same times. For example, `[1h:5m]` contains the twelve slices of the last
hour. The increase of counters needs at least two scrapes per slice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from alerts.prometheus.indicators import EventQueries
from alerts.prometheus.rulefile import number
from alerts.slices import Slices

ROUNDING: Final = Fraction(1, 1_000_000)
"""increase() of equal counters may differ in the last digits."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """Counts each slice as one event. `counted` counts the events inside a slice."""

    counted: EventQueries
    slices: Slices

    @property
    def about(self) -> str:
        """A sentence on how the events are counted, and when a slice is bad."""
        return (
            f"{self.counted.about} Each {self.slices.length} slice is one event. A slice is bad if"
            f" less than {self.slices.target_written} of its events are good."
        )

    @property
    def when_absent(self) -> str:
        """The same as `counted.when_absent`."""
        return self.counted.when_absent

    @property
    def blind(self) -> Mapping[str, str]:
        """The same as `counted.blind`."""
        return self.counted.blind

    @property
    def in_explorer(self) -> bool:
        """The same as `counted.in_explorer`."""
        return self.counted.in_explorer

    @property
    def staleness_s(self) -> int:
        """The same as `counted.staleness_s`."""
        return self.counted.staleness_s

    @property
    def slots(self) -> str | None:
        """The same as `counted.slots`."""
        return self.counted.slots

    @property
    def present(self) -> str:
        """The same as `counted.present`."""
        return self.counted.present

    def events(self, window: str) -> str:
        """The expression that counts the slices with events."""
        return f"count_over_time(((\n{self._all}\n) > 0)[{window}:{self.slices.length}])"

    def bad(self, window: str) -> str:
        """The expression that counts the slices with too few good events."""
        length = self.slices.length
        allowed = f"{number(max(1 - self.slices.target, ROUNDING))} * (\n{self._all}\n)"
        bad = f"(\n{self.counted.bad(length)}\n) > {allowed}"
        return f"count_over_time(({bad})[{window}:{length}]) or 0 * {self.events(window)}"

    @property
    def _all(self) -> str:
        return self.counted.events(self.slices.length)
