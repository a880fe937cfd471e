"""All dashboards. Cost and GPU join once there are series of them."""

from typing import Final

from dashboards import engine, fleet, objectives, requests
from dashboards.panels import Board

BOARDS: Final[tuple[Board, ...]] = (
    fleet.BOARD,
    objectives.BOARD,
    requests.BOARD,
    engine.BOARD,
)
