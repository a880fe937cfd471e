"""The latest sample of each GPU as Prometheus metrics.

A GPU without samples for a minute is omitted. If a GPU moves to a different replica, it counts for
the old and the new replica for ten seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from exporters.definitions.gpu_series import (
    ENERGY,
    GPU_GAUGES,
    LAST_SAMPLE,
    THROTTLE_REASON,
    THROTTLED,
)
from exporters.definitions.series_types import OTHER
from exporters.families import counter, gauge
from exporters.format.text import Family
from exporters.totals.engines import AHEAD_NS
from exporters.totals.label_limits import ExporterLabels
from telemetry.gpus import THROTTLE_REASONS, GpuSample

STALE_NS: Final = 60 * 10**9
MOVED_NS: Final = 10 * 10**9
GpuKey = tuple[str, str]
"""Replica and GPU."""


class GpuTotals:
    """The latest samples of all GPUs."""

    def __init__(self, clock_unix_ns: Callable[[], int]) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._latest: dict[GpuKey, GpuSample] = {}

    def add(self, sample: GpuSample) -> None:
        """Add a sample, unless it is older than the GPU's latest sample."""
        key = sample.replica, sample.gpu
        known = self._latest.get(key)
        latest_unix_ns = self._clock_unix_ns() + AHEAD_NS
        if known is None or not sample.at_unix_ns <= known.at_unix_ns <= latest_unix_ns:
            self._latest[key] = sample

    def view(self, labels: ExporterLabels) -> list[GpuSample]:
        """The latest sample of each current GPU. Removes GPUs that are stale, moved, or beyond the
        limit."""
        now_unix_ns = self._clock_unix_ns()
        current = {
            key: sample
            for key, sample in self._latest.items()
            if -AHEAD_NS <= now_unix_ns - sample.at_unix_ns <= STALE_NS
        }
        newest: dict[str, int] = {}
        for sample in current.values():
            newest[sample.gpu] = max(sample.at_unix_ns, newest.get(sample.gpu, 0))
        self._latest = {
            key: sample
            for key, sample in current.items()
            if sample.at_unix_ns >= newest[sample.gpu] - MOVED_NS and labels.holds_gpu(key)
        }
        return list(self._latest.values())


def gpu_families(samples: Sequence[GpuSample]) -> Iterator[Family]:
    """Yield the latest values of each GPU."""
    by_labels = {(each.replica, each.gpu, each.model_name or ""): each for each in samples}
    if not by_labels:
        return
    for name, of in GPU_GAUGES.items():
        values = {
            labels: getattr(each, name)
            for labels, each in by_labels.items()
            if getattr(each, name) is not None
        }
        if values:
            yield gauge(of, values)
    energy = {
        labels: each.energy_j_total
        for labels, each in by_labels.items()
        if each.energy_j_total is not None
    }
    if energy:
        yield counter(ENERGY, energy)
    reasons = {
        labels: [reason for reason in each.throttle_reasons.split(",") if reason]
        for labels, each in by_labels.items()
        if each.throttle_reasons is not None
    }
    if reasons:
        yield gauge(THROTTLED, {labels: len(active) for labels, active in reasons.items()})
    named = {
        (*labels, reason if reason in THROTTLE_REASONS else OTHER): 1
        for labels, active in reasons.items()
        for reason in active
    }
    if named:
        yield gauge(THROTTLE_REASON, named)
    yield gauge(LAST_SAMPLE, {key: each.at_unix_ns / 1e9 for key, each in by_labels.items()})
