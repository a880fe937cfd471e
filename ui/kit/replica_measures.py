"""The measures of replicas on the Fleet page. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ui.kit import wording


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity of a replica over time. Addresses contain its key, as in `measure=queue`."""

    key: str
    name: str
    unit: str
    meaning: str
    """The page appends the length of a time bin to this text, such as "1 min"."""
    shown: Callable[[float | None], str]
    whole: float | None = None
    """The top of the scale, such as 1 for a share."""
    of_gpu: bool = False


def _per_second(value: float | None) -> str:
    return wording.UNKNOWN if value is None else f"{wording.number(value)}/s"


_ALL: Final = (
    Measure(
        *("queue", "Waiting", "requests", "Highest number of requests in the engine's queue in"),
        wording.count,
    ),
    Measure(
        "running",
        "Running",
        "requests",
        "Highest number of requests in the batch in",
        wording.count,
    ),
    Measure(
        *("kv", "KV cache", "used", "Highest share of the KV cache in use in"),
        *(wording.percent, 1.0),
    ),
    Measure(
        *("hits", "Cache hits", "of tokens"),
        "Share of prompt tokens found in the prefix cache, over",
        *(wording.percent, 1.0),
    ),
    Measure(
        *("preemptions", "Preemptions", "per second", "Requests evicted from the batch, over"),
        _per_second,
    ),
    Measure("step", "Step", "mean", "Mean duration of the engine's steps, over", wording.seconds),
    Measure(
        *("longest", "Longest step", "time", "Duration of the engine's longest step in"),
        wording.seconds,
    ),
    Measure(
        *("tokens", "Tokens out", "per second", "Output tokens generated per second, over"),
        _per_second,
    ),
    Measure(
        *("prefill", "Tokens in", "per second", "Prompt tokens computed per second, over"),
        _per_second,
    ),
    Measure(
        *("stall", "Stall", "of busy time"),
        "Share of the engine's busy time that scheduled work does not explain, such as pauses of"
        " the process, over",
        *(wording.percent, 1.0),
    ),
    Measure(
        *("bandwidth", "Bandwidth", "of peak"),
        "Measured memory bandwidth as a share of the peak, mean of the replica's GPUs, over",
        *(wording.percent, 1.0, True),
    ),
    Measure(
        *("clock", "Clock", "of highest"),
        "Lowest SM clock of the replica's GPUs as a share of their maximum clock, in",
        *(wording.percent, 1.0, True),
    ),
)
MEASURES: Final = {measure.key: measure for measure in _ALL}
FIRST_MEASURE: Final = _ALL[0].key
