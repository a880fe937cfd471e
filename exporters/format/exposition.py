"""Write the response to a scrape: all families in one format, and metrics of the scrape itself."""

import resource
import sys
import time
from collections.abc import Iterable
from typing import Final

from exporters.definitions import series
from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.negotiation import Format
from exporters.format.text import Families, Family, write

CPU: Final = MetricSeries("process_cpu_seconds_total", "CPU time of this process, in seconds.")
MEMORY: Final = MetricSeries("process_resident_memory_bytes", "Memory of this process, in bytes.")
START: Final = MetricSeries(
    "process_start_time_seconds",
    "Timestamp at which this process began to export metrics, in unix seconds.",
)


class Exposition:
    """Writes a scrape: the families of its sources, the metrics of this process, and the metrics of
    the scrape itself.

    Args:
        sources: the sources in output order. Names of families must be unique over all sources.
    """

    def __init__(self, sources: Iterable[Families]) -> None:
        self._sources = tuple(sources)
        self._started_unix_s = time.time()
        self._last: tuple[float, int] | None = None

    def write(self, format_: Format) -> bytes:
        """Return a scrape in the given format."""
        begun = time.perf_counter()
        families = [family for source in self._sources for family in source.families()]
        families += self._process_families()
        families.append(
            gauge(series.METRIC_SERIES, {(family.name,): family.series for family in families})
        )
        text = write(families, format_)
        self._last = time.perf_counter() - begun, len(text)
        return text

    def _process_families(self) -> list[Family]:
        families = [
            counter(CPU, {(): time.process_time()}),
            gauge(START, {(): self._started_unix_s}),
        ]
        if (memory_bytes := _memory_bytes()) is not None:
            families.append(gauge(MEMORY, {(): memory_bytes}))
        if self._last is not None:
            seconds, size = self._last
            families.append(gauge(series.SCRAPE_SECONDS, {(): seconds}))
            families.append(gauge(series.SCRAPE_BYTES, {(): size}))
        return families


def _memory_bytes() -> int | None:
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 -- no file to keep
        return int(statm.read().split()[1]) * resource.getpagesize()
