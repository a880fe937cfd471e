"""Split a request's end-to-end time into layers. The layers sum to the end-to-end time. Pure.

With a step ledger, prefill and decode contain only the request's own work. The work for other
requests, preemption and stalls are separate layers. Unexplained time is also a separate layer.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.over_time.columns import FloatArray, IntArray, floats
from telemetry import phase_colours as colours
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a request's time. Pages show its name."""

    key: str
    name: str
    colour: str


LAYERS: Final = (
    Layer("frontend", "frontend", colours.FRONTEND),
    Layer("queue", "queue", colours.QUEUE),
    Layer("prefill", "prefill", colours.PREFILL),
    Layer("decode", "decode", colours.DECODE),
    Layer("preempted", "preempted", colours.PREEMPTED),
    Layer("others", "others’ work", colours.OTHERS),
    Layer("stall", "stall", colours.STALL),
    Layer("delivery", "delivery", colours.DELIVERY),
    Layer("unaccounted", "not split", colours.UNACCOUNTED),
)
"""The layers in the order of a request's phases. Charts stack the layers in this order."""

KEYS: Final = tuple(layer.key for layer in LAYERS)
COLUMNS: Final = (
    "e2e_s",
    "frontend_s",
    "queue_s",
    "prefill_s",
    "decode_s",
    "delivery_s",
    *PREFILL_PARTS,
    *DECODE_PARTS,
)

Matrix = npt.NDArray[np.float64]


def layers(table: pa.Table) -> Matrix:
    """Seconds of each request in each layer. Each row sums to `e2e_s`. A phase that never began has
    0 s.

    Shape (requests, layers).
    """
    seconds = {name: np.nan_to_num(floats(table, name)).clip(min=0) for name in COLUMNS}
    taken = {
        part: seconds[f"prefill_{part}"] + seconds[f"decode_{part}"]
        for part in ("others_prefill_s", "others_decode_s", "preempted_s", "stall_s")
    }
    own = {
        phase: seconds[f"{phase}_s"]
        - np.sum([seconds[name] for name in columns if name != f"{phase}_own_s"], axis=0)
        for phase, columns in (("prefill", PREFILL_PARTS), ("decode", DECODE_PARTS))
    }
    known = [
        seconds["frontend_s"],
        seconds["queue_s"],
        own["prefill"].clip(min=0),
        own["decode"].clip(min=0),
        taken["preempted_s"],
        taken["others_prefill_s"] + taken["others_decode_s"],
        taken["stall_s"],
        seconds["delivery_s"],
    ]
    rest = (seconds["e2e_s"] - np.sum(known, axis=0)).clip(min=0)
    rest[rest < 1e-6] = 0  # rounding error of float sums
    return np.column_stack([*known, rest])


def mean_per_bin(matrix: Matrix, index: IntArray, bins: int) -> tuple[Matrix, IntArray]:
    """The mean seconds of each layer in each bin, and the number of requests in each bin.

    The mean of an empty bin is NaN.

    Args:
        matrix: from `layers`.
        index: the bin of each request. Shape (requests,).
    """
    number = np.bincount(index, minlength=bins).astype(np.int64)
    sums = np.column_stack(
        [np.bincount(index, weights=column, minlength=bins) for column in matrix.T]
    )
    means: Matrix = np.full(sums.shape, np.nan)
    np.divide(sums, number[:, None], out=means, where=number[:, None] > 0)
    return means, number


BEFORE_FIRST_TOKEN: Final = ("frontend", "queue", "prefill")


@dataclass(frozen=True, slots=True)
class Largest:
    """The layer with the most time in a set of requests, and its share."""

    layer: Layer
    share: float
    requests: int


def largest_of_slowest(
    table: pa.Table, matrix: Matrix, latency: str, keys: tuple[str, ...] = KEYS
) -> Largest | None:
    """The layer with the most time in the slowest 1 % of the requests.

    Args:
        matrix: from `layers`.
        latency: the column that orders the requests.
        keys: the layers that the latency includes.
    """
    values: FloatArray = floats(table, latency)
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return None
    tail_size = max(1, known.size // 100)
    tail = known[np.argpartition(values[known], known.size - tail_size)[-tail_size:]]
    columns = [KEYS.index(key) for key in keys]
    sums = matrix[tail][:, columns].sum(axis=0)
    if sums.sum() <= 0:
        return None
    top = int(sums.argmax())
    return Largest(LAYERS[columns[top]], float(sums[top] / sums.sum()), tail_size)
