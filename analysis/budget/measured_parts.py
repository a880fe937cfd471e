"""Compute the seconds of each part of each request's latency. A part is time in the server, in the
network or in the application."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy import Engine

from analysis.budget.application_time import TimeAroundCall, time_around_call
from analysis.budget.budget import AROUND, BEYOND_TTFT, LAYERS, PARTS
from store.requests.network_time import NetworkTime, pairs
from store.requests.operations import operations_of
from telemetry.quantiles import FloatArray
from telemetry.requests import Outcome
from telemetry.window import Window

COLUMNS: Final = (
    *("trace_id", "request_id", "basis", "streamed", "ttft_s", "e2e_s", "outcome", "replica"),
    *("frontend_s", "queue_s", "prefill_s", "decode_s"),
)

_SERVER: Final = ("frontend", "queue", "prefill", "decode")
_PLACE: Final = {part: place for place, part in enumerate(PARTS)}


class Extent(IntEnum):
    """Which layers of a request's latency are known.

    Each value includes the layers of all lower values.
    """

    SERVER = 0
    NETWORK = 1
    """The server and the network are known, from a client's span."""
    APPLICATION = 2
    """The application's time around the call is also known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The parts of the requests, and how many requests have no parts.

    Attributes:
        seconds: (n, parts) the parts in the order of `PARTS`. Parts outside the request's extent
            are 0.
        extents: (n,) the `Extent` of each request.
        not_streamed: for TTFT, the number of requests whose answer was not streamed.
        unanswered: for E2E, the number of requests without a complete answer.
        without_phases: the number of requests whose phases are unknown.
    """

    seconds: FloatArray
    extents: NDArray[np.int64]
    not_streamed: int
    unanswered: int
    without_phases: int
    replicas: int

    def __len__(self) -> int:
        return int(self.extents.size)


def parts_in(layers: Iterable[str]) -> list[int]:
    """The indices in `PARTS` of all parts of these layers."""
    wanted = set(layers)
    return [place for part, place in _PLACE.items() if part.partition(".")[0] in wanted]


def layers_of(extent: Extent, latency: str) -> tuple[str, ...]:
    """The layers that an extent contains."""
    unknown = {
        Extent.SERVER: {*AROUND, "network"},
        Extent.NETWORK: set(AROUND),
        Extent.APPLICATION: set[str](),
    }[extent]
    if latency == "ttft":
        unknown |= set(BEYOND_TTFT)
    return tuple(layer for layer in LAYERS if layer not in unknown)


def measure(engine: Engine, window: Window, requests: pa.Table, latency: str) -> Measured:
    """Divide each request's latency (`ttft` or `e2e`) into parts. `requests` is a table with
    `COLUMNS`."""
    ends = latency == "e2e"
    total = _floats(requests, f"{latency}_s")
    streamed = np.asarray(pc.fill_null(requests["streamed"], True))
    answered = np.asarray(
        pc.fill_null(pc.is_in(requests["outcome"], pa.array([Outcome.STOP, Outcome.LENGTH])), False)
    )
    counted = answered if ends else streamed
    names = _SERVER if ends else _SERVER[:-1]
    phases = np.stack([_floats(requests, f"{name}_s") for name in names], axis=1)
    known = np.isfinite(phases).all(axis=1) & np.isfinite(total)
    chosen = np.flatnonzero(counted & known)
    seconds = np.zeros((chosen.size, len(PARTS)))
    for column, name in enumerate(names):
        seconds[:, _PLACE[name]] = phases[chosen, column]
    seconds[:, _PLACE["delivery"]] = total[chosen] - phases[chosen].sum(axis=1)
    taken = requests.take(pa.array(chosen))
    extents = _around(engine, window, taken, ends, seconds)
    return Measured(
        seconds,
        extents,
        not_streamed=0 if ends else int((~streamed).sum()),
        unanswered=int((~answered).sum()) if ends else 0,
        without_phases=int((counted & ~known).sum()),
        replicas=len(pc.unique(taken["replica"].drop_null())),
    )


def _around(
    engine: Engine, window: Window, requests: pa.Table, ends: bool, seconds: FloatArray
) -> NDArray[np.int64]:
    """Write the seconds in the network and in the application into `seconds`. Return each request's
    extent."""
    extents = np.zeros(requests.num_rows, dtype=np.int64)
    found = pairs(engine, window, requests, whole=ends)
    spans = _spans(found)
    traces = operations_of(engine, window, {trace_id for trace_id, _ in spans.values()})
    for row, pair in enumerate(found):
        if pair is None:
            continue
        extents[row] = Extent.NETWORK
        seconds[row, _PLACE["network"]] = pair.network_s
        trace_id, span_id = spans.get(row, ("", ""))
        its = time_around_call(span_id, traces.get(trace_id, ()))
        if its is not None:
            extents[row] = Extent.APPLICATION
            _fill_application_times(seconds[row], its, ends)
    return extents


def _spans(found: Sequence[NetworkTime | None]) -> Mapping[int, tuple[str, str]]:
    return {
        row: pair.span
        for row, pair in enumerate(found)
        if pair is not None and pair.span is not None
    }


def _fill_application_times(row: FloatArray, its: TimeAroundCall, ends: bool) -> None:
    for layer, spent_ns in (("before", its.before_ns), ("after", its.after_ns if ends else {})):
        for operation, ns in spent_ns.items():
            row[_PLACE[f"{layer}.{operation}"]] = ns / 1e9


def _floats(requests: pa.Table, name: str) -> FloatArray:
    return np.asarray(
        pc.fill_null(pc.cast(requests[name], pa.float64()), float("nan")), dtype=np.float64
    )
