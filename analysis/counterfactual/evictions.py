"""Distinguish two kinds of cache misses: the cached prefix was evicted, or the prompt is new.

The README describes the method. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from analysis.counterfactual.factors import Factor, FactorKind
from analysis.prefix_ladders import repeated_tokens
from analysis.recorded_traffic import Recorded
from replay.arrivals import BoolArray, FloatArray

_MAX_KEPT: Final = 0.9
"""Evictions are reported if `Evictions.kept` is below this value. In 58 simulated cases without a
fault that evicts prefixes, the smallest value was 0.97."""

_TAKE_BLOCKS: Final = (
    *(FactorKind.BLOCKS, FactorKind.OUTGROWN_BLOCKS, FactorKind.PROMPTS, FactorKind.OUTPUTS),
    *(FactorKind.LONG_OUTPUTS, FactorKind.LONG_PROMPTS, FactorKind.RATE, FactorKind.ROUTING),
)
"""The kinds of factors that can cause evictions of prefixes. If a window has several of these
factors, the first kind in this list counts as the cause."""


class Evictions(NamedTuple):
    """The evictions in a window, compared with the baseline."""

    factor: int
    repeated_ratio: FloatArray
    """(n,) the share of each recorded prompt that was also in an earlier request."""
    usually_kept: float
    """The share of the repeated tokens that were found in the cache in the baseline."""
    kept: FloatArray
    """(e,) for each engine, the share of the repeated tokens that were found in the cache in the
    window, divided by `usually_kept`, at most 1."""


def evictions(window: Recorded, baseline: Recorded, factors: Sequence[Factor]) -> Evictions | None:
    """The evictions.

    Return None if nothing was evicted, or if no factor can cause evictions."""
    places = [
        place for kind in _TAKE_BLOCKS for place, each in enumerate(factors) if each.kind is kind
    ]
    if not places:
        return None
    cached, repeated = _repeated(window)
    kept = _kept(cached, repeated, window.counted)
    usually_kept = _kept(*_repeated(baseline), baseline.counted)
    if not kept < _MAX_KEPT * usually_kept:
        return None
    of_engines = [
        _kept(cached[rows], repeated[rows], window.counted[rows], otherwise=kept) / usually_kept
        for rows in (each.rows for each in window.engines)
    ]
    ratio = repeated / np.maximum(window.column("prompt_tokens"), 1.0)
    return Evictions(places[0], ratio, usually_kept, np.minimum(of_engines, 1.0))


def _kept(
    cached: FloatArray, repeated: FloatArray, counted: BoolArray, otherwise: float = 1.0
) -> float:
    """Return the share of the repeated tokens that was cached, or `otherwise` if there are no
    repeated tokens."""
    whole = float(repeated[counted].sum())
    return float(cached[counted].sum()) / whole if whole > 0 else otherwise


def _repeated(recorded: Recorded) -> tuple[FloatArray, FloatArray]:
    """Return the cached and the repeated tokens of each request: two arrays (n,)."""
    external = np.nan_to_num(recorded.column("external_cached_tokens"))
    cached = np.maximum(np.nan_to_num(recorded.column("cached_tokens")) - external, 0.0)
    repeated = np.maximum(repeated_tokens(recorded), cached)
    return cached, repeated
