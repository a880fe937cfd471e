"""Metrics of scrape targets: up or down, and failures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

UP: Final = MetricSeries(
    "tailspan_scrape_up",
    "1 if the target's last scrape succeeded, 0 if it failed; absent before the first scrape.",
    ("target",),
)
FAILURES: Final = MetricSeries(
    "tailspan_scrape_failures_total",
    "Failed scrapes of the target, by reason.",
    ("target", "reason"),
)
DURATION: Final = MetricSeries(
    "tailspan_scrape_duration_seconds",
    "Duration of the target's last successful scrape.",
    ("target",),
)
LAST_SUCCESS: Final = MetricSeries(
    "tailspan_scrape_last_success_timestamp_seconds",
    "Timestamp of the target's last successful scrape, in unix seconds.",
    ("target",),
)
UNUSABLE: Final = MetricSeries(
    "tailspan_scrape_unusable_values_total",
    "Impossible values in the target's responses, such as a ratio above 1. They are treated as"
    " unknown.",
    ("target",),
)


DISCOVERY_UP: Final = MetricSeries(
    "tailspan_scrape_discovery_up",
    "1 if the last discovery from a file or a DNS name succeeded, 0 if it failed. After a failure,"
    " the previous targets stay in use.",
    ("discovery",),
)


class ScrapedTarget(Protocol):
    """The last results of a target: `collector.scrape.scraper.TargetState`."""

    @property
    def url(self) -> str:
        """The target's address."""

    @property
    def up(self) -> bool | None:
        """Whether the last scrape succeeded, or None before the first."""

    @property
    def failures(self) -> Mapping[str, int]:
        """The number of failures for each reason."""

    @property
    def duration_s(self) -> float | None:
        """Duration of the last successful scrape."""

    @property
    def last_success_unix_ns(self) -> int | None:
        """Time of the last successful scrape."""

    @property
    def unusable_values(self) -> int:
        """The number of impossible values that the target has sent."""


class ScrapeMetrics(Families):
    """Reports the last results of each target."""

    def __init__(
        self,
        report: Callable[[], Sequence[ScrapedTarget]],
        discoveries: Callable[[], Mapping[str, bool]],
    ) -> None:
        self._report = report
        self._discoveries = discoveries

    def families(self) -> Iterator[Family]:
        """Yield every family with the current values."""
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
