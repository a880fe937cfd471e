"""Metrics of GPU readers: up or down, and their failures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

UP: Final = Series(
    "tailspan_gpu_reader_up",
    "1 if the reader's last reading succeeded, 0 if not; absent if there is no GPU of its make.",
    ("reader",),
)
FAILURES: Final = Series(
    "tailspan_gpu_reader_failures_total",
    "Failed readings, and GPUs that failed in a reading, by reason.",
    ("reader", "reason"),
)
DURATION: Final = Series(
    "tailspan_gpu_reader_duration_seconds",
    "Duration of its last successful reading.",
    ("reader",),
)
LAST_SUCCESS: Final = Series(
    "tailspan_gpu_reader_last_success_timestamp_seconds",
    "Time of its last successful reading, in unix seconds.",
    ("reader",),
)
GPUS: Final = Series(
    "tailspan_gpu_reader_gpus", "GPUs and MIG slices in its last reading.", ("reader",)
)


class ReaderReport(Protocol):
    """The state of a reader, such as `collector.gpus.sampler.ReaderState`."""

    @property
    def name(self) -> str:
        """The reader's name."""

    @property
    def up(self) -> bool | None:
        """Return whether the last reading succeeded; None before it, and without GPUs."""

    @property
    def gpus(self) -> Sequence[object]:
        """The GPUs of the last reading."""

    @property
    def failures(self) -> Mapping[str, int]:
        """Failures by reason."""

    @property
    def duration_s(self) -> float | None:
        """Duration of the last successful reading."""

    @property
    def last_success_unix_ns(self) -> int | None:
        """Time of the last successful reading; None before it."""


class GpuReaderMetrics(Families):
    """Reports the state of the readers."""

    def __init__(self, report: Callable[[], Sequence[ReaderReport]]) -> None:
        self._report = report

    def families(self) -> Iterator[Family]:
        """Yield every family as of now; no family if there is no GPU."""
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
