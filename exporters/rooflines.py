"""How near each engine comes to what its GPUs can do, over the last minute.

From the samples that were stored and from what the engines told of themselves when they
started: shape, device. An engine of which one of these is not known is absent, as is one that
did nothing. Bytes and FLOPs are of one GPU, as a mean over the engine's.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from exporters.engine_series import ROOFLINES
from exporters.families import gauge
from exporters.text import Families, Family
from roofline.peaks import device_named
from roofline.reading import read_shape
from roofline.samples import Columns
from roofline.shape import ModelShape
from roofline.unknown import UnknownShapeError
from roofline.windows import Window, windows_of
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

SPAN_NS: Final = 60 * 10**9
STARTS_KEPT_NS: Final = 30 * 10**9
"""How long it is not asked again what engines were started with."""
MOST_ENGINES: Final = 1000

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
_Row = tuple[int, int, int, tuple[float | None, ...]]
"""Instant, process, its start, totals."""


@dataclass(slots=True)
class _Engine:
    model: str | None
    rows: deque[_Row] = field(default_factory=deque)


class RooflineMetrics(Families):
    """Keeps the last minute of every engine, and tells what it comes to.

    Args:
        starts: what engines were last started with, the newest of each.
        clock_unix_ns: the present.
        peaks: of devices, by a configuration (`roofline.peaks.device_named`).
    """

    def __init__(
        self,
        starts: Callable[[], Sequence[EngineStart]],
        clock_unix_ns: Callable[[], int],
        peaks: Mapping[str, Any] | None = None,
    ) -> None:
        self._ask = starts
        self._clock_unix_ns = clock_unix_ns
        self._peaks = peaks
        self._engines: dict[EngineKey, _Engine] = {}
        self._starts: dict[EngineKey, EngineStart] = {}
        self._asked_unix_ns: int | None = None
        self._lock = threading.Lock()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Note samples; an engine beyond the most that are kept is left out."""
        with self._lock:
            for sample in samples:
                self._add(sample)

    def families(self) -> Iterator[Family]:
        """Of every engine that can be told of."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            self._forget(now_unix_ns - SPAN_NS)
            engines = {
                key: (each.model or "", list(each.rows)) for key, each in self._engines.items()
            }
        starts = self._in_force(now_unix_ns) if engines else {}
        told: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in ROOFLINES}
        for key, (model, rows) in engines.items():
            window = self._window(rows, starts.get(key))
            if window is None:
                continue
            for name, values in told.items():
                value = getattr(window, name)
                if value is not None:
                    values[model, key[0], str(key[1])] = value
        for name, values in told.items():
            if values:
                yield gauge(ROOFLINES[name], values)

    def _add(self, sample: EngineSample) -> None:
        key = sample.replica, sample.engine
        engine = self._engines.get(key)
        if engine is None:
            if len(self._engines) >= MOST_ENGINES:
                return
            engine = self._engines[key] = _Engine(sample.model)
        engine.model = sample.model or engine.model
        totals = tuple(getattr(sample, name) for name in _TOTALS)
        engine.rows.append((sample.at_unix_ns, sample.process, sample.started_unix_ns, totals))
        while engine.rows[0][0] < sample.at_unix_ns - SPAN_NS:
            engine.rows.popleft()

    def _forget(self, before_unix_ns: int) -> None:
        for key, engine in list(self._engines.items()):
            while engine.rows and engine.rows[0][0] < before_unix_ns:
                engine.rows.popleft()
            if not engine.rows:
                del self._engines[key]

    def _in_force(self, now_unix_ns: int) -> Mapping[EngineKey, EngineStart]:
        asked = self._asked_unix_ns
        if asked is None or not 0 <= now_unix_ns - asked < STARTS_KEPT_NS:
            self._asked_unix_ns = now_unix_ns
            try:
                self._starts = {(start.replica, start.engine): start for start in self._ask()}
            except Exception:  # a scrape must not fail for it; what was known still holds
                _log.warning("engine starts could not be read", exc_info=True)
        return self._starts

    def _window(self, rows: list[_Row], start: EngineStart | None) -> Window | None:
        if start is None or len(rows) < 2:
            return None
        columns = Columns(
            at_unix_ns=np.array([at for at, *_ in rows], dtype=np.int64),
            series=_numbered([(process, began) for _, process, began, _ in rows]),
            numbers=dict(
                zip(
                    _TOTALS,
                    np.array([totals for *_, totals in rows], dtype=np.float64).T,
                    strict=True,
                )
            ),
        )
        device = device_named(start.device, self._peaks)
        windows = windows_of(columns, _shape(start), device, width_s=None)
        return windows[0] if windows and windows[0].steps else None


def _shape(start: EngineStart) -> ModelShape | None:
    try:
        return None if start.shape is None else read_shape(start.shape)
    except UnknownShapeError:
        return None


def _numbered(series: list[tuple[int, int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    numbers = {each: number for number, each in enumerate(dict.fromkeys(series))}
    return np.array([numbers[each] for each in series], dtype=np.int64)
