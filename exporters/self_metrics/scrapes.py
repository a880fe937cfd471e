"""Whom we scrape, as Prometheus metrics: up or down, and what was amiss."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

UP: Final = Series(
    "tailspan_scrape_up",
    "1 where the target's last answer was taken, 0 where not; absent before the first.",
    ("target",),
)
FAILURES: Final = Series(
    "tailspan_scrape_failures_total",
    "Questions to the target that told nothing, by what was amiss.",
    ("target", "reason"),
)
DURATION: Final = Series(
    "tailspan_scrape_duration_seconds", "How long its last good answer took.", ("target",)
)
LAST_SUCCESS: Final = Series(
    "tailspan_scrape_last_success_timestamp_seconds",
    "When its last good answer was taken, in unix seconds.",
    ("target",),
)
UNUSABLE: Final = Series(
    "tailspan_scrape_unusable_values_total",
    "Values in its answers that cannot be, such as a ratio over 1; left unknown.",
    ("target",),
)


DISCOVERY_UP: Final = Series(
    "tailspan_scrape_discovery_up",
    "1 where a file or a name last told its targets, 0 where not; those of before stay.",
    ("discovery",),
)


class ScrapedTarget(Protocol):
    """How it stands with one target; `collector.scrape.scraper.TargetState` answers."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def up(self) -> bool | None:
        """None before the first answer."""

    @property
    def failures(self) -> Mapping[str, int]:
        """By reason."""

    @property
    def duration_s(self) -> float | None:
        """Of the last good answer."""

    @property
    def last_success_unix_ns(self) -> int | None:
        """None before it."""

    @property
    def unusable_values(self) -> int:
        """All told."""


class ScrapeMetrics(Families):
    """Tells how the targets stand."""

    def __init__(
        self,
        report: Callable[[], Sequence[ScrapedTarget]],
        discoveries: Callable[[], Mapping[str, bool]],
    ) -> None:
        self._report = report
        self._discoveries = discoveries

    def families(self) -> Iterator[Family]:
        """Every series as of now; none without targets."""
        if found := self._discoveries():
            yield gauge(DISCOVERY_UP, {(name,): int(up) for name, up in found.items()})
        states = {state.url: state for state in self._report()}
        if not states:
            return
        yield gauge(UP, {(url,): int(s.up) for url, s in states.items() if s.up is not None})
        yield counter(
            FAILURES,
            {
                (url, str(reason)): count
                for url, state in states.items()
                for reason, count in state.failures.items()
            },
        )
        yield gauge(
            DURATION,
            {(url,): s.duration_s for url, s in states.items() if s.duration_s is not None},
        )
        yield gauge(
            LAST_SUCCESS,
            {
                (url,): s.last_success_unix_ns / 1e9
                for url, s in states.items()
                if s.last_success_unix_ns is not None
            },
        )
        yield counter(UNUSABLE, {(url,): s.unusable_values for url, s in states.items()})
