import threading
import time
from bisect import bisect_right
from typing import Any, Final, Self

from alerts.evaluation.evaluator import Evaluator
from alerts.openslo.reader import OBJECTIVES, load
from simulator.dataset import run as simulate
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline

SECOND_NS: Final = 10**9
PAST_S: Final = 1_200
FLOOD_S: Final = 300
"""Seconds before the present at which one tenant begins to flood the fleet, as in `make run`."""
FUTURE_S: Final = 120
"""The number of seconds for which new rows can arrive."""


class LiveFleet:
    """Twenty minutes of a simulated fleet in a database, and new rows every second."""

    def __init__(self, url: str) -> None:
        self.url = url
        now_ns = time.time_ns() // SECOND_NS * SECOND_NS
        self.began_unix_s = now_ns // SECOND_NS - FLOOD_S
        """The start of the flood, in Unix seconds."""
        found = simulate(
            FleetConfig(
                workload=Workload(rate_per_s=4.0),
                faults=(SimulatedFault(cause="tenant_flood", start_s=float(PAST_S - FLOOD_S)),),
                started_unix_ns=now_ns - PAST_S * SECOND_NS,
                duration_s=float(PAST_S + FUTURE_S),
            )
        )
        self._rows: list[list[Any]] = [
            sorted(rows, key=_arrives_ns)
            for rows in (found.requests, found.samples, found.starts, found.gpus)
        ]
        self._ending = threading.Event()
        self._engine = open_database(url)
        self._writer = Writer(self._engine)
        self._store(now_ns)
        Evaluator(self._engine, load([OBJECTIVES]).objectives).evaluate(now_ns // SECOND_NS)
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._writer.close()
        self._engine.dispose()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        while not self._ending.wait(1.0):
            self._store(time.time_ns())

    def _store(self, until_ns: int) -> None:
        arrived = []
        for rows in self._rows:
            number = bisect_right(rows, until_ns, key=_arrives_ns)
            arrived.append(rows[:number])
            del rows[:number]
        self._writer.submit(*arrived).result()


def _arrives_ns(row: Any) -> int:
    if isinstance(row, RequestTimeline):
        return row.received_unix_ns + int(row.e2e_s * SECOND_NS)
    at_ns: int = row.at_unix_ns
    return at_ns
