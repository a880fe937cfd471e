"""Time slices in PromQL: a slice is an event, whichever way the events in it are counted.

The steps of a subquery lie at whole multiples of the step since 1970, where `alerts.slices` ends
its slices: `[1h:5m]` holds the twelve slices of 5 minutes that ended in the last hour. The events
of a slice are counted at its end, so Prometheus must scrape at least twice in a slice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from alerts.indicators import Counted
from alerts.rulefile import number
from alerts.slices import Slices

ROUNDING: Final = Fraction(1, 1_000_000)
"""increase() extrapolates two counters that are equal to numbers that differ in the last digits."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """Slices of time, by what another way of counting finds in each."""

    counted: Counted
    slices: Slices

    @property
    def about(self) -> str:
        """As of the events, and what a slice is."""
        return (
            f"{self.counted.about} Each {self.slices.length} is one event, bad if less than"
            f" {self.slices.target_written} of what was counted in it is good."
        )

    @property
    def when_absent(self) -> str:
        """As of the events."""
        return self.counted.when_absent

    @property
    def blind(self) -> Mapping[str, str]:
        """As of the events."""
        return self.counted.blind

    @property
    def in_explorer(self) -> bool:
        """As of the events."""
        return self.counted.in_explorer

    @property
    def outlived_s(self) -> int:
        """As of the events."""
        return self.counted.outlived_s

    @property
    def places(self) -> str | None:
        """As of the events."""
        return self.counted.places

    @property
    def present(self) -> str:
        """As of the events."""
        return self.counted.present

    def events(self, window: str) -> str:
        """The slices that had any event."""
        return f"count_over_time(((\n{self._all}\n) > 0)[{window}:{self.slices.length}])"

    def bad(self, window: str) -> str:
        """Those of them with too few good events."""
        length = self.slices.length
        allowed = f"{number(max(1 - self.slices.target, ROUNDING))} * (\n{self._all}\n)"
        bad = f"(\n{self.counted.bad(length)}\n) > {allowed}"
        return f"count_over_time(({bad})[{window}:{length}]) or 0 * {self.events(window)}"

    @property
    def _all(self) -> str:
        return self.counted.events(self.slices.length)
