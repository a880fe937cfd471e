"""Divide the cost of the engines' steps between prefill and decode, and compute the bytes and FLOPs
of both.

Prefill and decode are called the two sides. Pure.

    requests + wasted + unbilled = prefill + decode + undivided

`requests`, `wasted` and `unbilled` are the parts of the bill for the time in steps (`cost.bill`).
The step model divides the time of a step (`cost.weights`). The time for prompt tokens is prefill,
and the time for output tokens is decode. The fixed time of a step, and the bytes of the weights,
are divided equally among the step's sequences. All other bytes and FLOPs belong to the tokens that
need them. `undivided` is the cost of the hours for which no step model is known.

Each chunk of a prompt reads the KV cache of the earlier chunks. These reads are not counted, so the
bytes of prefill are slightly too low.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from cost.bill import Bill
from cost.engine_rates import EngineStarts
from cost.uptime import Hour
from roofline.errors import UnknownShapeError
from roofline.load import StepLoad, summed
from roofline.peaks import Device, device_named
from roofline.shape import ModelShape
from roofline.shape_from_config import read_shape
from roofline.work import work_of
from store.joined.roles import ARGUMENT
from telemetry.starts import EngineStart, read

SideName = Literal["prefill", "decode"]
SIDES: Final[tuple[SideName, SideName]] = ("prefill", "decode")

MAX_SHAPES: Final = 256
"""Maximum number of parsed model shapes in memory. It bounds the memory: a sender can
report a different shape at each start."""


@dataclass(frozen=True, slots=True)
class CostSide:
    """The cost and the work of one side, over all engines with one role. Unknown values are None.

    Attributes:
        role: `kv_producer`, `kv_consumer` or `kv_both`; None without a role.
        usd: the cost of the time `busy_s`.
        busy_s: the time in engine steps that this side needed, summed over the engines.
        flops: FLOPs on all GPUs.
        moved_bytes: bytes of weights and KV cache on all GPUs.
        mfu: share of the peak FLOP/s during `busy_s`.
        mbu: share of the peak memory bandwidth during `busy_s`.
    """

    role: str | None
    name: SideName
    usd: float
    busy_s: float
    flops: float | None
    moved_bytes: float | None
    mfu: float | None
    mbu: float | None


@dataclass(frozen=True, slots=True)
class Sides:
    """The prefill and decode sides of each role, and the cost of the steps that cannot be
    divided."""

    sides: Sequence[CostSide]
    undivided_usd: float


@dataclass(slots=True)
class _Sum:
    usd: float = 0.0
    busy_s: float = 0.0
    flops: float = 0.0
    moved_bytes: float = 0.0
    shaped_s: float = 0.0
    """The part of `busy_s` for which FLOPs and bytes are known."""
    compute_s: float = 0.0
    memory_s: float = 0.0
    peaked_s: float = 0.0
    """The part of `busy_s` for which FLOPs, bytes and device peaks are known."""


def sides_of(
    bill: Bill, starts: Iterable[EngineStart], peaks: Mapping[str, Any] | None = None
) -> Sides:
    """Divide the time that a bill's engines spent in steps between prefill and decode.

    Args:
        starts: the engines' starts. In each hour, the shape, the device and the role are those of
            the last start before the end of the hour and of the bill.
        peaks: peaks of devices that override the built-in table.
    """
    by_engine = EngineStarts(starts, bill.to_unix_ns)
    sums: dict[tuple[str | None, SideName], _Sum] = defaultdict(_Sum)
    undivided_usd = 0.0
    hours = _hours(bill)
    for line in bill.lines:
        weights = bill.weights.get((line.replica, line.hour_unix_s))
        share = None if weights is None else weights.in_share
        usd = line.bill_usd - (line.idle_usd or 0.0) - line.loading_usd
        if share is None or line.idle_usd is None or line.busy_s is None:
            undivided_usd += usd
            continue
        engines = [
            (hour, start)
            for engine, hour in hours.get((line.replica, line.hour_unix_s), ())
            if (start := by_engine.at((line.replica, engine), line.hour_unix_s)) is not None
        ]
        role = _role(engines[0][1]) if engines else None
        for name, part in zip(SIDES, (share, 1.0 - share), strict=True):
            sums[role, name].usd += usd * part
            sums[role, name].busy_s += line.busy_s * part
        fixed = weights.fixed_in_share if weights is not None else None
        for hour, start in engines:
            if fixed is not None:
                both = (sums[role, "prefill"], sums[role, "decode"])
                _add_work(both, hour, start, share, fixed, peaks)
    ordered = sorted(sums.items(), key=lambda each: (each[0][0] or "", SIDES.index(each[0][1])))
    return Sides([_side(role, name, of) for (role, name), of in ordered], undivided_usd)


def _role(start: EngineStart) -> str | None:
    role = read(start.arguments).get(ARGUMENT)
    return role if isinstance(role, str) else None


def _hours(bill: Bill) -> Mapping[tuple[str, int], Sequence[tuple[int, Hour]]]:
    found: defaultdict[tuple[str, int], list[tuple[int, Hour]]] = defaultdict(list)
    for ((replica, engine), at), hour in bill.uptime.hours.items():
        found[replica, at].append((engine, hour))
    return found


def _add_work(
    sums: tuple[_Sum, _Sum],
    hour: Hour,
    start: EngineStart,
    share: float,
    fixed: float,
    peaks: Mapping[str, Any] | None,
) -> None:
    shape = _shape(start.shape)
    if shape is None or not hour.busy_s or "prefill_attention_total" not in hour.work:
        return
    device = device_named(start.device, peaks)
    decodes_only = work_of(shape, _load(hour, 1.0 - fixed, prompts=False))
    both = work_of(shape, _load(hour, 1.0, prompts=True))
    gpus = start.gpus or 1
    linear, plain = _peaks(shape, device)
    for of, part, sign in ((sums[0], share, -1.0), (sums[1], 1.0 - share, 0.0)):
        # The work of prefill is the work of both sides minus the work of decode.
        whole = both if sign else decodes_only
        linear_flops = float((whole.linear_flops + sign * decodes_only.linear_flops)[0])
        plain_flops = float((whole.plain_flops + sign * decodes_only.plain_flops)[0])
        moved_bytes = float((whole.bytes + sign * decodes_only.bytes)[0])
        of.flops += gpus * (linear_flops + plain_flops)
        of.moved_bytes += gpus * moved_bytes
        of.shaped_s += hour.busy_s * part
        if device is not None and linear and plain:
            of.compute_s += linear_flops / linear + plain_flops / plain
            of.memory_s += moved_bytes / device.bytes_per_s
            of.peaked_s += hour.busy_s * part


def _load(hour: Hour, steps_share: float, *, prompts: bool) -> StepLoad:
    def total(name: str, counts: bool = True) -> Any:
        return np.array([hour.work.get(name, 0.0) if counts else 0.0])

    return summed(
        total("steps_total") * steps_share,
        total("scheduled_prefill_tokens_total", prompts),
        total("prefill_attention_total", prompts),
        total("context_tokens_total"),
        total("decodes_total"),
    )


def _peaks(shape: ModelShape, device: Device | None) -> tuple[float | None, float | None]:
    if device is None:
        return None, None
    precision = shape.precision
    return (
        device.flops_in(precision.linear_math, precision.plain_math),
        device.flops_in(precision.plain_math, precision.plain_math),
    )


@lru_cache(maxsize=MAX_SHAPES)
def _shape(text: str | None) -> ModelShape | None:
    if text is None:
        return None
    try:
        return read_shape(text)
    except UnknownShapeError:
        return None


def _side(role: str | None, name: SideName, of: _Sum) -> CostSide:
    return CostSide(
        role=role,
        name=name,
        usd=of.usd,
        busy_s=of.busy_s,
        flops=of.flops if of.shaped_s else None,
        moved_bytes=of.moved_bytes if of.shaped_s else None,
        mfu=of.compute_s / of.peaked_s if of.peaked_s else None,
        mbu=of.memory_s / of.peaked_s if of.peaked_s else None,
    )
