"""All dashboards."""

from typing import Final

from dashboards import cost, engine, fleet, gpu, objectives, operation, probes, requests
from dashboards.panels import Board

BOARDS: Final[tuple[Board, ...]] = (
    fleet.BOARD,
    objectives.BOARD,
    requests.BOARD,
    engine.BOARD,
    gpu.BOARD,
    cost.BOARD,
    probes.BOARD,
    operation.BOARD,
)
