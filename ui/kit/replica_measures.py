"""The measures of each replica, and their format. Pure.

The keys appear in the page's address (`measure=queue`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ui.kit import wording


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity of a replica over time."""

    key: str
    name: str
    unit: str
    meaning: str
    shown: Callable[[float | None], str]
    whole: float | None = None
    """The value of 100 %, if there is one; it gives every replica the same scale."""
    of_gpu: bool = False


def _per_second(value: float | None) -> str:
    return wording.UNKNOWN if value is None else f"{wording.number(value)}/s"


_ALL: Final = (
    Measure(
        *("queue", "Waiting", "requests", "Requests in the engine's waiting line; the most in"),
        wording.count,
    ),
    Measure("running", "Running", "requests", "Requests in the batch; the most in", wording.count),
    Measure(
        *("kv", "KV cache", "used", "Share of the KV cache in use; the most in"),
        *(wording.percent, 1.0),
    ),
    Measure(
        *("hits", "Cache hits", "of tokens"),
        "Share of the prompts' tokens that the prefix cache already held, over",
        *(wording.percent, 1.0),
    ),
    Measure(
        *("preemptions", "Preemptions", "per second", "Requests evicted from the batch, over"),
        _per_second,
    ),
    Measure("step", "Step", "mean", "Mean time of a step of the engine, over", wording.seconds),
    Measure(
        *("longest", "Longest step", "time", "The longest single step of the engine in"),
        wording.seconds,
    ),
    Measure(
        *("tokens", "Tokens out", "per second", "Tokens of answers made per second, over"),
        _per_second,
    ),
    Measure(
        *("prefill", "Tokens in", "per second", "Prompt tokens computed per second, over"),
        _per_second,
    ),
    Measure(
        *("stall", "Stall", "of busy time"),
        "Share of the engine's busy time that no scheduled work explains, over",
        *(wording.percent, 1.0),
    ),
    Measure(
        *("bandwidth", "Bandwidth", "of peak"),
        "Measured memory bandwidth against the GPU's peak, the mean of its GPUs, over",
        *(wording.percent, 1.0, True),
    ),
    Measure(
        *("clock", "Clock", "of highest"),
        "The lowest SM clock of its GPUs against the highest it can have, in",
        *(wording.percent, 1.0, True),
    ),
)
"""`meaning` ends where the length of a bin is appended."""

MEASURES: Final = {measure.key: measure for measure in _ALL}
FIRST_MEASURE: Final = _ALL[0].key
