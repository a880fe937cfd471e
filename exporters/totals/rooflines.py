"""The share of peak bandwidth and FLOP/s that each engine used in the last minute.

Idle engines are omitted. Engines without a known shape or device are also omitted. Bytes and FLOPs
are means over the engine's GPUs.
"""

import logging
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, Final

import numpy as np

from exporters.definitions.engine_series import ROOFLINES
from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family
from exporters.totals.engines import AHEAD_NS
from roofline.chunks import Chunks, read_chunks
from roofline.errors import UnknownShapeError
from roofline.peaks import Device, device_named
from roofline.samples import Columns
from roofline.shape import ModelShape
from roofline.shape_from_config import read_shape
from roofline.windows import RooflineWindow, windows_of
from telemetry.engines import MAX_TRACKED, EngineSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

SPAN_NS: Final = 60 * 10**9
_APART_NS: Final = 2 * SPAN_NS + 10**9
SWEEP_NS: Final = 10**9
MAX_ENGINES: Final = MAX_TRACKED
MAX_ROWS: Final = 4_096
"""Maximum stored samples per engine. It is one minute of 64 processes with a sample every
second."""

LEFT_OUT: Final = MetricSeries(
    "tailspan_roofline_left_out_samples_total",
    "Samples that the utilisation metrics do not include, by reason: engine (there are more than"
    f" {MAX_ENGINES:,} engines) or sample (the engine sent more than {MAX_ROWS:,} samples in a"
    " minute).",
    ("of",),
)

_TOTALS: Final = (
    "steps_total",
    "busy_s_total",
    "scheduled_prefill_tokens_total",
    "prefill_attention_total",
    "context_tokens_total",
    "decodes_total",
    "draft_tokens_total",
    "modelled_flops_total",
    "modelled_read_bytes_total",
    "modelled_write_bytes_total",
)

_log = logging.getLogger(__name__)

EngineKey = tuple[str, int]
_Row = tuple[int, int, int]
"""Timestamp, process id, and start of the process."""
_Kind = tuple[str | None, str | None, Chunks | None]
"""Model shape, device and prefill chunks."""


@dataclass(slots=True)
class _Engine:
    model: str | None
    rows: deque[_Row] = field(default_factory=deque)
    totals: "array[float]" = field(default_factory=lambda: array("d"))
    """The totals of all rows, one row after another. Unknown totals are NaN."""

    def add(self, row: _Row, totals: list[float]) -> bool:
        """Return whether the oldest sample was dropped to make room."""
        self.rows.append(row)
        self.totals.extend(totals)
        if len(self.rows) <= MAX_ROWS:
            return False
        self.rows.popleft()
        del self.totals[: len(_TOTALS)]
        return True

    def forget(self, from_unix_ns: int, to_unix_ns: float = inf) -> None:
        """Remove the oldest samples, up to the first sample that is in the range."""
        gone = 0
        while self.rows and not from_unix_ns <= self.rows[0][0] <= to_unix_ns:
            self.rows.popleft()
            gone += 1
        del self.totals[: gone * len(_TOTALS)]

    def copy(self) -> "_Engine":
        return _Engine(self.model, self.rows.copy(), self.totals[:])


class RooflineMetrics(Families):
    """Stores the last minute of samples of every engine, and computes the utilisation of its GPUs.

    Args:
        peaks: configured peaks of devices (`roofline.peaks.device_named`).
    """

    def __init__(
        self,
        starts: Callable[[Collection[str]], Mapping[EngineKey, EngineStart]],
        clock_unix_ns: Callable[[], int],
        peaks: Mapping[str, Any] | None = None,
    ) -> None:
        self._starts = starts
        self._clock_unix_ns = clock_unix_ns
        self._peaks = peaks
        self._engines: dict[EngineKey, _Engine] = {}
        self._swept_ns = 0
        self._overflows = {"engine": 0, "sample": 0}
        self._lock = threading.Lock()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Add samples. Samples of engines beyond `MAX_ENGINES` are only counted."""
        with self._lock:
            for sample in samples:
                self._add(sample)

    def families(self) -> Iterator[Family]:
        """Yield the utilisation of every engine with a known shape and device."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            self._forget(now_unix_ns)
            engines = {key: each.copy() for key, each in self._engines.items()}
        starts = self._starts({replica for replica, _ in engines})
        by_kind: dict[_Kind, dict[EngineKey, _Engine]] = {}
        for key, each in engines.items():
            if key in starts and len(each.rows) > 1:
                start = starts[key]
                kind = start.shape, start.device, read_chunks(start.arguments)
                by_kind.setdefault(kind, {})[key] = each
        by_name: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in ROOFLINES}
        for (shape, device, chunks), group in by_kind.items():
            peaks = device_named(device, self._peaks)
            for key, window in _windows(group, _shape(shape), peaks, chunks):
                for name, values in by_name.items():
                    value = getattr(window, name)
                    if value is not None:
                        values[group[key].model or "", key[0], str(key[1])] = value
        for name, values in by_name.items():
            if values:
                yield gauge(ROOFLINES[name], values)
        if any(self._overflows.values()):
            yield counter(LEFT_OUT, {(what,): number for what, number in self._overflows.items()})

    def _add(self, sample: EngineSample) -> None:
        key = sample.replica, sample.engine
        engine = self._engines.get(key)
        if engine is None:
            now_unix_ns = self._clock_unix_ns()
            if len(self._engines) >= MAX_ENGINES and now_unix_ns - self._swept_ns >= SWEEP_NS:
                self._forget(now_unix_ns)
            if len(self._engines) >= MAX_ENGINES:
                self._overflows["engine"] += 1
                return
            engine = self._engines[key] = _Engine(sample.model)
        engine.model = sample.model or engine.model
        totals = (getattr(sample, name) for name in _TOTALS)
        self._overflows["sample"] += engine.add(
            (sample.at_unix_ns, sample.process, sample.started_unix_ns),
            [nan if value is None else value for value in totals],
        )
        engine.forget(sample.at_unix_ns - SPAN_NS)

    def _forget(self, now_unix_ns: int) -> None:
        self._swept_ns = now_unix_ns
        for key, engine in list(self._engines.items()):
            engine.forget(now_unix_ns - SPAN_NS, now_unix_ns + AHEAD_NS)
            if not engine.rows:
                del self._engines[key]


def _windows(
    group: Mapping[EngineKey, _Engine],
    shape: ModelShape | None,
    device: Device | None,
    chunks: Chunks | None,
) -> Iterator[tuple[EngineKey, RooflineWindow]]:
    """Yield the utilisation of each engine of a group with the same shape and device. All engines
    are computed together, because separate computations take five times as long."""
    keys, series = list(group), dict[tuple[int, int, int], int]()
    at_ns: list[int] = []
    numbers: list[int] = []
    for place, each in enumerate(group.values()):
        # The windows of all engines are placed one after another on one time axis. The window of an
        # engine begins a minute before its last sample and ends a minute after it. A sample outside
        # this range could fall into the window of a different engine.
        begin_ns, end_ns = place * _APART_NS, (place + 1) * _APART_NS
        shift_ns = begin_ns + SPAN_NS - each.rows[-1][0]
        for at, process, started in each.rows:
            inside = begin_ns <= at + shift_ns < end_ns
            at_ns.append(at + shift_ns if inside else -1)
            numbers.append(series.setdefault((place, process, started), len(series)))
    totals = np.frombuffer(b"".join(each.totals for each in group.values()), dtype=np.float64)
    times = np.array(at_ns, dtype=np.int64)
    kept = times >= 0
    columns = Columns(
        at_unix_ns=times[kept],
        series=np.array(numbers, dtype=np.int64)[kept],
        numbers=dict(zip(_TOTALS, totals.reshape(-1, len(_TOTALS))[kept].T, strict=True)),
    )
    for window in windows_of(columns, shape, device, width_s=_APART_NS / 1e9, chunks=chunks):
        if window.steps:
            yield keys[window.from_unix_ns // _APART_NS], window


def _shape(text: str | None) -> ModelShape | None:
    try:
        return None if text is None else read_shape(text)
    except UnknownShapeError:
        return None
