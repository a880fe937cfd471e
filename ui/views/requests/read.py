"""Read the Requests page's data from the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from analysis.counted_requests import counted_as, counting_notes
from analysis.joined.requests import JoinedList, JoinedQuestion, answer_joined
from analysis.over_time.engine_gauges import read_gauges
from analysis.over_time.rolled import Rolled, read_rolled
from analysis.over_time.rows import PAGE_COLUMNS, page_requests, without_ttft_of_whole_answers
from analysis.requests import scraped_servers
from analysis.stored_data import is_simulated, stored_data
from telemetry.window import Window
from ui.kit.unreadable import store_errors

MAX_JOINED_ROWS: Final = 20_000
"""Maximum number of rows to join, which takes about a second. The newest rows are used."""

NO_JOINED: Final = JoinedList()


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
    joined: JoinedList = NO_JOINED
    """The joined requests among the newest rows, if requests were read."""
    counting: Sequence[str] = ()
    """Sentences that state what the counts and charts count."""

    @property
    def number(self) -> int:
        """Number of requests."""
        return self.requests.num_rows if self.rolled is None else self.rolled.requests


def read_requests(
    engine: Engine, window: Window, equals: Mapping[str, str], latency: str = "ttft_s"
) -> RequestsData:
    """Read a window's requests and samples. If there are too many requests, read rollups."""
    with store_errors():
        rolled = read_rolled(engine, window, equals, latency, PAGE_COLUMNS)
        requests = page_requests(engine, window, equals) if rolled is None else rolled.slowest
        return RequestsData(
            window=window,
            requests=without_ttft_of_whole_answers(requests),
            samples=read_gauges(engine, window, equals),
            scraped_replicas=scraped_servers(engine, window),
            newest_unix_ns=stored_data(engine).newest_unix_ns,
            simulated=is_simulated(engine, window) if rolled is None else rolled.simulated,
            rolled=rolled,
            joined=(
                answer_joined(engine, JoinedQuestion(window, equals, max_rows=MAX_JOINED_ROWS))
                if rolled is None
                else NO_JOINED
            ),
            counting=counting_notes(counted_as(engine, window, ["replica"])),
        )
