"""Read the Requests page's data from the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from store.joined.read import JoinedAnswer, read_joined
from store.queries import newest_unix_ns, request_table, sample_peaks
from store.replicas.scraped_replicas import scraped_replicas
from telemetry.window import Window
from ui.kit.rollup_reads import Rolled, read_rolled
from ui.kit.store_reads import COLUMNS, is_simulated, store_errors, without_ttft_of_whole_answers
from ui.views.requests import engines

MAX_JOINED_ROWS: Final = 20_000
"""Maximum number of rows to join, in about a second. The newest rows are used."""

NO_JOINED: Final = JoinedAnswer()


@dataclass(frozen=True, slots=True)
class RequestsData:
    """The data of the page."""

    window: Window
    requests: pa.Table
    samples: pa.Table
    scraped_replicas: int
    newest_unix_ns: int | None
    simulated: bool
    rolled: Rolled | None = None
    """The rollups, if there are too many requests. `requests` then has the slowest requests."""
    joined: JoinedAnswer = NO_JOINED
    """The joined requests among the newest rows, if requests were read."""

    @property
    def number(self) -> int:
        """Number of requests."""
        return self.requests.num_rows if self.rolled is None else self.rolled.requests


def read_requests(
    engine: Engine, window: Window, equals: Mapping[str, str], latency: str = "ttft_s"
) -> RequestsData:
    """Read a window's requests and samples. If there are too many requests, read rollups."""
    replica = {"replica": equals["replica"]} if "replica" in equals else {}
    with store_errors():
        rolled = read_rolled(engine, window, equals, latency, COLUMNS)
        bins = engines.bins_for(window.from_unix_ns, window.to_unix_ns)
        requests = (
            request_table(engine, window, equals=equals, columns=COLUMNS)
            if rolled is None
            else rolled.slowest
        )
        return RequestsData(
            window=window,
            requests=without_ttft_of_whole_answers(requests),
            samples=sample_peaks(
                engine, window, bins.first_unix_ns, bins.width_ns, engines.GAUGES, equals=replica
            ),
            scraped_replicas=scraped_replicas(engine, window),
            newest_unix_ns=newest_unix_ns(engine),
            simulated=is_simulated(engine, window) if rolled is None else rolled.simulated,
            rolled=rolled,
            joined=(
                read_joined(engine, window, equals, MAX_JOINED_ROWS)
                if rolled is None
                else NO_JOINED
            ),
        )
