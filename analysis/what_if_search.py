"""Predict many values of one edit: a sweep, or a search for the value that meets an SLO."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from analysis.recorded_traffic import NotReplayableError, Recorded
from analysis.what_if import RESAMPLED, WhatIfAnswer, WhatIfQuestion, predict, predict_each
from replay.edits import ARGUMENTS, EditError, Edits, edits_of
from replay.engine_config import EngineConfig

MAX_POINTS: Final = 12
"""Maximum number of values of a sweep. Each value takes `RESAMPLED` replays."""
STEPS: Final = 9
"""Number of values in a range of factors such as 1x..2x, in constant ratios."""
MAX_REPLICAS: Final = 1_024
MAX_RATE: Final = 64.0
MIN_RATE: Final = 1 / 64
RATE_STEP: Final = 1.02
"""A search for the rate ends when the rate is known to within 2 %. It is not more exact, because a
queue counts as stable up to 2 % above the capacity."""

_WHOLE: Final = (
    *("max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks", "num_speculative_tokens"),
    *("long_prefill_token_threshold", "max_model_len", "replicas"),
)
FACTORS: Final = ("rate", "prompt", "output")
SWEPT: Final = (*_WHOLE, *FACTORS)
_RANGE: Final = re.compile(r"([0-9.]+)x?\.\.([0-9.]+)x?")

SearchedEdit = Literal["replicas", "rate"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The values of one edit."""

    name: str
    values: Sequence[str]

    def present(self, config: EngineConfig, replicas: int) -> float:
        """Return the value of the setting before the change, or 1 for a factor."""
        if self.name == "replicas":
            return replicas
        return 1.0 if self.name in FACTORS else float(getattr(config, ARGUMENTS[self.name].field))


def number_of(value: str) -> float:
    """Return a value of a sweep, such as 64 or 1.5x, as a number."""
    return float(value.rstrip("x"))


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The prediction for one value."""

    value: str
    answer: WhatIfAnswer


def objectives_of(points: Sequence[SweepPoint]) -> dict[str, float]:
    """The objectives that at least one prediction of a sweep contains, with the present share of
    good requests.

    A prediction has no objective whose requests the changed engines would all reject."""
    return {one.slo: one.good_ratio_now for each in points for one in each.answer.objectives}


class SearchStep(NamedTuple):
    """One step of a search: a tried value, and whether it meets the SLO."""

    value: float
    good_ratio: float
    saturated: bool
    met: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The smallest number of replicas, or the highest rate, with which an SLO is met."""

    wanted: SearchedEdit
    slo: str
    target: float
    value: float | None
    """The value that was found, or None if no value within the limits meets the SLO."""
    tried: Sequence[SearchStep]
    """The tried values in ascending order."""
    shown: float
    """The value that was found. If no value was found, it is the tried value with the most good
    requests."""
    answer: WhatIfAnswer
    """The prediction for `shown`."""


def sweep_of(text: str) -> Sweep:
    """Parse a sweep in the form NAME=LOW..HIGH or NAME=A,B,C.

    If a range has more than `MAX_POINTS` integers, the values are LOW, 2 × LOW, 4 × LOW and so on,
    and finally HIGH. A range of factors has `STEPS` values.

    Raises:
        EditError: the text has another form, or there are too many values.
    """
    name, _, given = text.partition("=")
    name = name.strip().replace("-", "_")
    if name not in SWEPT:
        raise EditError(f"sweep of {name!r}; allowed: {', '.join(SWEPT)}")
    bounds = _RANGE.fullmatch(given.strip())
    if bounds is None:
        values = [value.strip() for value in given.split(",") if value.strip()]
    else:
        values = _sweep_values(name, *(_bound(text, each) for each in bounds.groups()))
    if not 2 <= len(values) <= MAX_POINTS:
        raise EditError(
            f"sweep {text!r}: {len(values)} values; allowed: 2 to {MAX_POINTS}, as in"
            " max_num_seqs=16..512 or rate=1x,1.5x,2x"
        )
    for value in values:
        edits_of([f"{name}={value}"])
    return Sweep(name, values)


def sweep(
    recorded: Recorded,
    question: WhatIfQuestion,
    over: Sweep,
    draws: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> list[SweepPoint]:
    """Predict each value of a sweep, in addition to the question's other edits.

    Raises:
        EditError: a value is not allowed.
    """
    alternatives = [_with_edit(question.edits, over.name, value) for value in over.values]
    answers = predict_each(recorded, question, alternatives, draws, progress)
    return [SweepPoint(*each) for each in zip(over.values, answers, strict=True)]


def find(
    recorded: Recorded,
    question: WhatIfQuestion,
    wanted: SearchedEdit,
    slo: str,
    progress: Callable[[], None] = lambda: None,
) -> SearchResult:
    """Find the smallest number of replicas, or the highest rate, with which an SLO is met.

    An SLO is met if the predicted share of good requests reaches the target and the queue does not
    grow.

    Args:
        progress: called after each replay of a value, and each draw of the final answer.

    Raises:
        EditError: the SLO is unknown, Tailspan does not count it, or it has no requests.
        NotReplayableError: the unchanged replay does not reproduce the measured latencies.
    """
    objective = next((each for each in question.objectives if each.name == slo), None)
    if objective is None:
        known = ", ".join(each.name for each in question.objectives)
        raise EditError(f"slo: {slo!r}; allowed: {known or 'none is defined'}")
    only = replace(question, objectives=[objective])
    tried: dict[float, SearchStep] = {}

    def met(value: float) -> bool:
        if value not in tried:
            answer = predict(recorded, replace(only, edits=_edits(question, wanted, value)), 0)
            progress()
            if answer.refused is not None:
                raise NotReplayableError(answer.refused)
            if not answer.objectives:
                raise EditError(f"slo: {slo!r} counts no request of this range")
            ratio = answer.objectives[0].good_ratio.value or 0.0
            tried[value] = SearchStep(
                value,
                ratio,
                answer.saturated,
                ratio >= float(objective.target) and not answer.saturated,
            )
        return tried[value].met

    value = _smallest_that_meets(met) if wanted == "replicas" else _highest(met)
    ordered = sorted(tried.values(), key=lambda each: each.value)
    shown = value if value is not None else max(ordered, key=lambda each: each.good_ratio).value
    edits = _edits(question, wanted, shown)
    answer = predict(recorded, replace(question, edits=edits), progress=progress)
    return SearchResult(wanted, slo, float(objective.target), value, ordered, shown, answer)


def _smallest_that_meets(met: Callable[[float], bool]) -> float | None:
    """Return the smallest whole number that meets the SLO, or None if no tried number meets it.

    The number is found by doubling and bisection."""
    high = 1
    while not met(high):
        if high >= MAX_REPLICAS:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def _highest(met: Callable[[float], bool]) -> float | None:
    """The highest factor that meets the SLO, to within `RATE_STEP`."""
    low = high = 1.0
    while met(high):
        if high >= MAX_RATE:
            return high
        low, high = high, high * 2
    while not met(low):
        if low <= MIN_RATE:
            return None
        low, high = low / 2, low
    while high / low > RATE_STEP:
        middle = round(math.sqrt(low * high), 2 if low >= 0.5 else 4)
        if middle in (low, high):
            break
        low, high = (middle, high) if met(middle) else (low, middle)
    return low


def _edits(question: WhatIfQuestion, wanted: SearchedEdit, value: float) -> Edits:
    return _with_edit(
        question.edits, wanted, f"{value:g}x" if wanted == "rate" else str(int(value))
    )


def _with_edit(edits: Edits, name: str, value: str) -> Edits:
    """Return edits with one more edit. It replaces an earlier edit of the same name. If both are
    rate edits, their factors are multiplied."""
    return edits_of([*_without_edit(edits.listed(), name), f"{name}={value}"])


def _without_edit(listed: Iterable[str], name: str) -> list[str]:
    return [each for each in listed if name == "rate" or each.partition("=")[0] != name]


def _bound(text: str, given: str) -> float:
    try:
        return float(given)
    except ValueError:
        raise EditError(f"sweep {text!r}: {given!r} is not a number") from None


def _sweep_values(name: str, low: float, high: float) -> list[str]:
    if not 0 < low < high < math.inf:
        raise EditError(
            f"sweep of {name}: {low:g}..{high:g}; the range must start above 0 and increase"
        )
    if name in FACTORS:
        edits_of(f"{name}={bound:.4g}x" for bound in (low, high))
        ratio = (high / low) ** (1 / (STEPS - 1))
        factors = [f"{low * ratio**place:.4g}x" for place in range(STEPS)]
        return list(dict.fromkeys(factors))
    first, last = round(low), round(high)
    if (first, last) != (low, high):
        raise EditError(f"sweep of {name}: {low:g}..{high:g}; allowed: whole numbers")
    if last - first < MAX_POINTS:
        return [str(value) for value in range(first, last + 1)]
    doubled = [first * 2**place for place in range(1 + int(math.log2(last / first)))]
    return [str(value) for value in dict.fromkeys([*doubled, last])]
