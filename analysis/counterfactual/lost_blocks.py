"""Find how many KV blocks the engines lost in a window, for example by a leak.

No counter reports lost blocks, so their number is found by bisection: with this number of lost
blocks, requests wait in a replay's queues as long as measured. The mean wait of all requests is
compared, because another cause may dominate the slowest requests.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.recorded_traffic import Recorded, RecordedEngine
from replay.engine_config import EngineConfig
from replay.kv_cache import blocks_for

_BISECTIONS: Final = 8
"""Number of bisections. The result is exact to 0.4 % of all blocks."""
MIN_RATIO: Final = 0.9
"""If the mean wait in a replay with all blocks is at least this share of the measured mean wait, no
blocks are lost."""


def without_lost_blocks(
    window: Recorded, measured_s: float, replayed_s: Callable[[Recorded], float]
) -> Recorded | None:
    """Return the window without the lost KV blocks, or None if no blocks are lost.

    Args:
        measured_s: the measured mean wait of all requests.
        replayed_s: a function that returns the mean wait in a replay of a window.
    """
    if replayed_s(window) >= MIN_RATIO * measured_s:
        return None
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if replayed_s(_with_share(window, middle)) > measured_s:
            low = middle
        else:
            high = middle
    return _with_share(window, high)


def _with_share(window: Recorded, share: float) -> Recorded:
    engines = [
        replace(each, model=replace(each.model, engine=_with_fewer_blocks(each, share)))
        for each in window.engines
    ]
    return replace(window, engines=engines)


def _with_fewer_blocks(engine: RecordedEngine, share: float) -> EngineConfig:
    """Keep the blocks that the longest request needs, and the given share of the other blocks."""
    config, arrivals = engine.model.engine, engine.arrivals
    longest = int(np.max(arrivals.prompt_tokens + arrivals.output_tokens, initial=1)) + 1
    least = blocks_for(longest, config.block_size) + 1
    blocks = least + round(share * max(config.num_gpu_blocks - least, 0))
    fits = min(config.max_model_len, blocks * config.block_size)
    return replace(config, num_gpu_blocks=blocks, max_model_len=fits)
