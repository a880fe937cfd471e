"""Records windows of simulated fleets for replays."""

from typing import Any

from analysis.recorded_traffic import LEAD_S, REQUEST_COLUMNS, Recorded, recorded_of
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig
from store.queries import Window


def simulated_window(seconds: int, **about: Any) -> tuple[Dataset, Window]:
    config = FleetConfig(duration_s=LEAD_S + seconds, **about)
    start_ns = config.started_unix_ns + LEAD_S * 10**9
    return run(config), Window(start_ns, start_ns + seconds * 10**9)


def recorded_window(data: Dataset, window: Window) -> Recorded:
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    return recorded_of(requests, data.sample_table(), data.starts, window)
