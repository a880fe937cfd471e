"""Records windows of simulated fleets for replays."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.recorded_traffic import LEAD_S, REQUEST_COLUMNS, Recorded, recorded_of
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig
from telemetry.window import Window


def simulated_window(seconds: int, **about: Any) -> tuple[Dataset, Window]:
    config = FleetConfig(duration_s=LEAD_S + seconds, **about)
    start_ns = config.started_unix_ns + LEAD_S * 10**9
    return run(config), Window(start_ns, start_ns + seconds * 10**9)


def recorded_window(data: Dataset, window: Window, half_streamed: bool = False) -> Recorded:
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    if half_streamed:
        requests = with_half_streamed(requests)
    return recorded_of(requests, data.sample_table(), data.starts, window)


def with_half_streamed(requests: pa.Table) -> pa.Table:
    """Return the requests. Every second response is not streamed: its first byte is sent at its
    end."""
    streamed = pa.array(np.arange(requests.num_rows) % 2 == 0)
    changed = {
        "streamed": streamed,
        "ttft_s": pc.if_else(streamed, requests["ttft_s"], requests["e2e_s"]),
    }
    for name, column in changed.items():
        requests = requests.set_column(requests.column_names.index(name), name, column)
    return requests
