"""Metrics of GPU readers: up or down, and failures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

UP: Final = MetricSeries(
    "tailspan_gpu_reader_up",
    "1 if the reader's last attempt succeeded, 0 if it failed; absent if the machine has no GPU"
    " of the reader's vendor.",
    ("reader",),
)
FAILURES: Final = MetricSeries(
    "tailspan_gpu_reader_failures_total",
    "Failed attempts to read GPUs, and failed GPUs in successful attempts, by reason.",
    ("reader", "reason"),
)
DURATION: Final = MetricSeries(
    "tailspan_gpu_reader_duration_seconds",
    "Duration of the reader's last successful attempt.",
    ("reader",),
)
LAST_SUCCESS: Final = MetricSeries(
    "tailspan_gpu_reader_last_success_timestamp_seconds",
    "Timestamp of the reader's last successful attempt, in unix seconds.",
    ("reader",),
)
GPUS: Final = MetricSeries(
    "tailspan_gpu_reader_gpus",
    "GPUs and MIG slices in the reader's last successful attempt.",
    ("reader",),
)


class ReaderReport(Protocol):
    """The last results of a reader: `collector.gpus.sampler.ReaderState`."""

    @property
    def name(self) -> str:
        """The reader's name."""

    @property
    def up(self) -> bool | None:
        """Whether the last attempt succeeded. None if there was no attempt or no GPU."""

    @property
    def gpus(self) -> Sequence[object]:
        """The GPUs that the last attempt found."""

    @property
    def failures(self) -> Mapping[str, int]:
        """The number of failures for each reason."""

    @property
    def duration_s(self) -> float | None:
        """Duration of the last successful attempt."""

    @property
    def last_success_unix_ns(self) -> int | None:
        """Time of the last successful attempt."""


class GpuReaderMetrics(Families):
    """Reports the last results of each reader."""

    def __init__(self, report: Callable[[], Sequence[ReaderReport]]) -> None:
        self._report = report

    def families(self) -> Iterator[Family]:
        """Yield every family with the current values. Yield nothing if the machine has no GPU."""
        states = {each.name: each for each in self._report() if each.up is not None}
        if not states:
            return
        yield gauge(UP, {(name,): int(bool(each.up)) for name, each in states.items()})
        yield gauge(GPUS, {(name,): len(each.gpus) for name, each in states.items()})
        yield counter(
            FAILURES,
            {
                (name, str(reason)): count
                for name, each in states.items()
                for reason, count in each.failures.items()
            },
        )
        for of, values in (
            (DURATION, {(n,): s.duration_s for n, s in states.items() if s.duration_s is not None}),
            (
                LAST_SUCCESS,
                {
                    (n,): s.last_success_unix_ns / 1e9
                    for n, s in states.items()
                    if s.last_success_unix_ns is not None
                },
            ),
        ):
            if values:
                yield gauge(of, values)
