"""Compute the token weights of cells, and whether their responses were lost.

Pure.
"""

from cost.weights import Weights
from telemetry.accounts import Cells
from telemetry.requests import Outcome

LOST = (Outcome.ABORT.value, Outcome.ERROR.value)
"""Outcomes of requests whose responses were not delivered."""


def tokens(place: int, cells: Cells, weights: Weights) -> tuple[float, float]:
    """Return the weights of a cell's input tokens and output tokens."""
    prompt, cached, output = (
        float(cells.sums[name][place])
        for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    )
    return weights.of(prompt, cached, output)


def is_lost(place: int, cells: Cells) -> bool:
    """Return whether the responses of a cell's requests were not delivered."""
    return cells.labels[int(cells.group[place])][list(cells.by).index("outcome")] in LOST
