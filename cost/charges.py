"""What cells of requests say of who pays: their tokens by weight, and whether anybody got them.

Pure.
"""

from cost.weights import Weights
from telemetry.accounts import Cells
from telemetry.requests import Outcome

LOST = (Outcome.ABORT.value, Outcome.ERROR.value)
"""Outcomes whose answers nobody got."""


def tokens(place: int, cells: Cells, weights: Weights) -> tuple[float, float]:
    """What a cell's tokens weigh: those that went in, those that came out."""
    prompt, cached, output = (
        float(cells.sums[name][place])
        for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    )
    return weights.of(prompt, cached, output)


def is_lost(place: int, cells: Cells) -> bool:
    """Whether nobody got the answers of a cell's requests."""
    return cells.labels[int(cells.group[place])][list(cells.by).index("outcome")] in LOST
