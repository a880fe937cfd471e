"""Accounts made by hand: engines as (replica, samples), requests as cells."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from cost.prices import DevicePrice, Origin, PriceList
from telemetry.accounts import (
    AMOUNTS,
    COEFFICIENTS,
    WORK,
    Accounts,
    Cells,
    Count,
    EngineStretches,
    GpuStretches,
)
from telemetry.starts import EngineStart

NS = 10**9
BY = ("replica", "outcome", "model", "tenant")
DEVICE = "NVIDIA H100 80GB HBM3"
PRICES = PriceList(devices=(DevicePrice("H100", (DEVICE,), 3.6, Origin("a contract")),))
"""A thousandth of a dollar a second."""


def engine_stretches(
    samples: Mapping[tuple[str, int], Sequence[tuple[float, float | None]]],
    started_s: float = -1e6,
    fit: Sequence[float] | None = None,
    work: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> EngineStretches:
    """Of (replica, engine) its samples: (unix seconds, busy seconds in total)."""
    counts, which, rows, first, last = [], [], [], [], []
    for (replica, engine), told in samples.items():
        counts.append(Count(replica, engine, 1, int(started_s * NS)))
        minutes: dict[int, list[tuple[float, float | None]]] = {}
        for at, busy in told:
            minutes.setdefault(int(at // 60), []).append((at, busy))
        for several in minutes.values():
            which.append(len(counts) - 1)
            rows.append((several[0][0], several[-1][0]))
            first.append(np.nan if several[0][1] is None else several[0][1])
            last.append(np.nan if several[-1][1] is None else several[-1][1])
    empty = np.full(len(rows), np.nan)
    return EngineStretches(
        counts=counts,
        regions=[None] * len(counts),
        which=np.array(which, np.int64),
        bucket_unix_s=np.array([int(a // 60) * 60 for a, _ in rows], np.int64),
        first_unix_ns=np.array([round(a * NS) for a, _ in rows], np.int64),
        last_unix_ns=np.array([round(b * NS) for _, b in rows], np.int64),
        first={
            n: np.array(first) if n == "busy_s_total" else np.array(work.get(n, empty))
            for n in WORK
        },
        last={
            n: np.array(last) if n == "busy_s_total" else np.array(work.get(n, empty)) for n in WORK
        },
        coefficients={
            n: empty if fit is None else np.full(len(rows), fit[place])
            for place, n in enumerate(COEFFICIENTS)
        },
    )


def no_gpus() -> GpuStretches:
    """None that tell."""
    none = np.zeros(0, np.int64)
    return GpuStretches([], [], none, none, none, none, np.zeros(0), np.zeros(0))


def cells(*rows: Mapping[str, Any]) -> Cells:
    """Each of labels, an hour, a number of requests and amounts."""
    labels = [tuple(row.get(name) for name in BY) for row in rows]
    return Cells(
        by=BY,
        labels=labels,
        group=np.arange(len(rows)),
        hour_unix_s=np.array([row.get("hour", 0) for row in rows], np.int64),
        requests=np.array([row.get("requests", 1) for row in rows], np.int64),
        sums={n: np.array([float(row.get(n) or 0.0) for row in rows]) for n in AMOUNTS},
        told={
            n: np.array([float(row.get("requests", 1)) if n in row else 0.0 for row in rows])
            for n in AMOUNTS
        },
    )


def start(replica: str, engine: int = 0, **about: Any) -> EngineStart:
    """An engine's start, on one H100 if not said otherwise."""
    plain: dict[str, Any] = {"device": DEVICE, "gpus": 1, "process": 1, "at_unix_ns": -NS}
    return EngineStart(
        replica=replica, engine=engine, config="c", arguments="{}", **{**plain, **about}
    )


def accounts(
    engines: EngineStretches,
    charged: Cells,
    starts: Sequence[EngineStart],
    from_s: float = 0,
    to_s: float = 3_600,
    gpus: GpuStretches | None = None,
) -> Accounts:
    """All of it."""
    return Accounts(
        from_unix_ns=round(from_s * NS),
        to_unix_ns=round(to_s * NS),
        engines=engines,
        gpus=gpus or no_gpus(),
        cells=charged,
        starts=starts,
    )


def busy(from_s: int, to_s: int, share: float, before: float = 0.0) -> list[tuple[float, float]]:
    """Samples each second of an engine that is busy that share of the time."""
    return [(at, before + (at - from_s) * share) for at in range(from_s, to_s + 1)]
