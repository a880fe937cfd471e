from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from cost.bill_lines import RequestPrice
from cost.charges import weighed_tokens
from cost.prices import DevicePrice, PriceList, PriceOrigin
from cost.replica_hours import replica_hours
from cost.request_costs import RequestCosts, costs_of
from telemetry.billing_data import (
    AMOUNTS,
    COEFFICIENTS,
    WORK,
    BillingCells,
    BillingData,
    CounterKey,
    EngineCounterSpans,
    GpuEnergySpans,
)
from telemetry.starts import EngineStart

NS = 10**9
BY = ("replica", "outcome", "model", "tenant")
DEVICE = "NVIDIA H100 80GB HBM3"
PRICES = PriceList(devices=(DevicePrice("H100", (DEVICE,), 3.6, PriceOrigin("a contract")),))
"""An H100 costs $0.001 per second."""


def engine_stretches(
    samples: Mapping[tuple[str, int], Sequence[tuple[float, float | None]]],
    started_s: float = -1e6,
    fit: Sequence[float] | None = None,
    work: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> EngineCounterSpans:
    """From samples of (Unix seconds, total busy seconds)."""
    counts, which, rows, first, last = [], [], [], [], []
    for (replica, engine), pairs in samples.items():
        counts.append(CounterKey(replica, engine, 1, int(started_s * NS)))
        minutes: dict[int, list[tuple[float, float | None]]] = {}
        for at, busy in pairs:
            minutes.setdefault(int(at // 60), []).append((at, busy))
        for several in minutes.values():
            which.append(len(counts) - 1)
            rows.append((several[0][0], several[-1][0]))
            first.append(np.nan if several[0][1] is None else several[0][1])
            last.append(np.nan if several[-1][1] is None else several[-1][1])
    empty = np.full(len(rows), np.nan)
    return EngineCounterSpans(
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


def no_gpus() -> GpuEnergySpans:
    none = np.zeros(0, np.int64)
    return GpuEnergySpans([], [], none, none, none, none, np.zeros(0), np.zeros(0))


def gpu_minutes(*rows: tuple[str, int, int], replica: str = "r") -> GpuEnergySpans:
    """GPUs that draw 300 W, with a sample at the start and the end of each minute.

    Args:
        rows: GPU, first and last minute.
    """
    names = list(dict.fromkeys(name for name, *_ in rows))
    spans = [(names.index(name), at * 60) for name, *ends in rows for at in range(*ends)]
    which, at_s = np.array(spans, np.int64).T
    return GpuEnergySpans(
        gpus=[(replica, name) for name in names],
        models=[DEVICE] * len(names),
        which=which,
        bucket_unix_s=at_s,
        first_unix_ns=at_s * NS,
        last_unix_ns=(at_s + 59) * NS,
        first_j=at_s * 300.0,
        last_j=(at_s + 59) * 300.0,
    )


def cells(*rows: Mapping[str, Any]) -> BillingCells:
    labels = [tuple(row.get(name) for name in BY) for row in rows]
    return BillingCells(
        by=BY,
        labels=labels,
        group=np.arange(len(rows)),
        hour_unix_s=np.array([row.get("hour", 0) for row in rows], np.int64),
        requests=np.array([row.get("requests", 1) for row in rows], np.int64),
        sums={n: np.array([float(row.get(n) or 0.0) for row in rows]) for n in AMOUNTS},
        reported={
            n: np.array([float(row.get("requests", 1)) if n in row else 0.0 for row in rows])
            for n in AMOUNTS
        },
    )


def costs_at(usd_per_s: float, *rows: Mapping[str, Any]) -> RequestCosts:
    """The cost of `cells` at one price per billed second."""
    made = cells(*rows)
    hours = replica_hours(made)
    pricing = {key: RequestPrice(None, usd_per_s, None) for key in hours.keys}
    return costs_of(made, hours, weighed_tokens(made, hours, {}), pricing, {})


def start(replica: str, engine: int = 0, **about: Any) -> EngineStart:
    plain: dict[str, Any] = {"device": DEVICE, "gpus": 1, "process": 1, "at_unix_ns": -NS}
    return EngineStart(
        replica=replica, engine=engine, config="c", arguments="{}", **{**plain, **about}
    )


def accounts(
    engines: EngineCounterSpans,
    charged: BillingCells,
    starts: Sequence[EngineStart],
    from_s: float = 0,
    to_s: float = 3_600,
    gpus: GpuEnergySpans | None = None,
) -> BillingData:
    return BillingData(
        from_unix_ns=round(from_s * NS),
        to_unix_ns=round(to_s * NS),
        engines=engines,
        gpus=gpus or no_gpus(),
        cells=charged,
        starts=starts,
    )


def busy(from_s: int, to_s: int, share: float, before: float = 0.0) -> list[tuple[float, float]]:
    """Samples, one per second, of an engine that is busy for this share of the time."""
    return [(at, before + (at - from_s) * share) for at in range(from_s, to_s + 1)]


FIT = (0.004, 30e-6, 1e-9, 20e-9, 50e-6, 0.002)
"""The step model's coefficients γ, α, κ, β, δ and λ."""


def steady(
    engines: Mapping[str, tuple[int, int]],
    from_s: int,
    to_s: int,
    rps: Callable[[int], tuple[float, float, float]] = lambda hour: (2.0, 800.0, 200.0),
) -> BillingData:
    """Accounts of engines with data per minute, and of requests with data per hour.

    Args:
        engines: (start, end) in seconds, by replica.
        rps: requests per second, and prompt and output tokens per request, by hour.
    """
    counts, which, first_s, last_s = [], [], [], []
    totals: dict[str, list[tuple[float, float]]] = {name: [] for name in WORK}
    rows = []
    for replica, (up_s, down_s) in engines.items():
        counts.append(CounterKey(replica, 0, 1, -(10**15)))
        total = dict.fromkeys(WORK, 0.0)
        for hour in range(up_s // 3_600 * 3_600, down_s, 3_600):
            rate, went_in, came_out = rps(hour)
            decodes = rate * (came_out - 1)
            per_s = {
                "steps_total": 40.0,
                "prefill_steps_total": rate,
                "scheduled_prefill_tokens_total": rate * went_in,
                "prefill_attention_total": rate * went_in**2 / 2,
                "context_tokens_total": decodes * (went_in + came_out / 2),
                "decodes_total": decodes,
            }
            per_s["busy_s_total"] = (
                FIT[0] * per_s["steps_total"]
                + FIT[1] * per_s["scheduled_prefill_tokens_total"]
                + FIT[2] * per_s["prefill_attention_total"]
                + FIT[3] * per_s["context_tokens_total"]
                + FIT[4] * per_s["decodes_total"]
                + FIT[5] * per_s["prefill_steps_total"]
            )
            begins, ends = max(up_s, hour), min(down_s, hour + 3_600)
            for minute in range(begins, ends, 60):
                if not from_s - 60 <= minute < to_s + 60:
                    continue
                which.append(len(counts) - 1)
                until = min(minute + 60, ends)
                first_s.append(minute)
                last_s.append(until)
                for name in WORK:
                    at = total[name] + (minute - begins) * per_s[name]
                    totals[name].append((at, at + (until - minute) * per_s[name]))
            for name in WORK:
                total[name] += (ends - begins) * per_s[name]
            inside_s = max(0, min(ends, to_s) - max(begins, from_s))
            if inside_s:
                number = round(rate * inside_s)
                rows.append(
                    {"replica": replica, "hour": hour, "outcome": "stop", "requests": number,
                     "billed_s": per_s["busy_s_total"] * inside_s, "wasted_s": 0.0,
                     "prompt_tokens": number * went_in, "output_tokens": number * came_out}
                )  # fmt: skip
    number = len(which)
    stretches = EngineCounterSpans(
        counts=counts,
        regions=[None] * len(counts),
        which=np.array(which, np.int64),
        bucket_unix_s=np.array(first_s, np.int64) // 60 * 60,
        first_unix_ns=np.array(first_s, np.int64) * NS,
        last_unix_ns=np.array(last_s, np.int64) * NS,
        first={name: np.array([one for one, _ in each]) for name, each in totals.items()},
        last={name: np.array([one for _, one in each]) for name, each in totals.items()},
        coefficients={name: np.full(number, FIT[at]) for at, name in enumerate(COEFFICIENTS)},
    )
    return accounts(stretches, cells(*rows), [start(replica) for replica in engines], from_s, to_s)
