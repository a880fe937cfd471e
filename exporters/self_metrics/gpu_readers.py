"""How the readers of GPUs stand, as Prometheus metrics: up or down, and what was amiss."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

UP: Final = Series(
    "tailspan_gpu_reader_up",
    "1 where the reader's last look told, 0 where not; absent where there is no GPU of its make.",
    ("reader",),
)
FAILURES: Final = Series(
    "tailspan_gpu_reader_failures_total",
    "Looks that told nothing, and GPUs that told nothing at a look, by what was amiss.",
    ("reader", "reason"),
)
DURATION: Final = Series(
    "tailspan_gpu_reader_duration_seconds", "How long its last good look took.", ("reader",)
)
LAST_SUCCESS: Final = Series(
    "tailspan_gpu_reader_last_success_timestamp_seconds",
    "When its last good look was, in unix seconds.",
    ("reader",),
)
GPUS: Final = Series(
    "tailspan_gpu_reader_gpus", "GPUs and slices of GPUs that its last look told of.", ("reader",)
)


class ReaderReport(Protocol):
    """How it stands with one reader; `collector.gpus.sampler.ReaderState` answers."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def up(self) -> bool | None:
        """None before the first look, and where there is no GPU of its make."""

    @property
    def gpus(self) -> Sequence[object]:
        """What it told last."""

    @property
    def failures(self) -> Mapping[str, int]:
        """By reason."""

    @property
    def duration_s(self) -> float | None:
        """Of the last good look."""

    @property
    def last_success_unix_ns(self) -> int | None:
        """None before it."""


class GpuReaderMetrics(Families):
    """Tells how the readers stand."""

    def __init__(self, report: Callable[[], Sequence[ReaderReport]]) -> None:
        self._report = report

    def families(self) -> Iterator[Family]:
        """Every series as of now; none where there is no GPU."""
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
        for of, told in (
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
            if told:
                yield gauge(of, told)
