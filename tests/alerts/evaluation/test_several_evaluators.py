"""Evaluators of several collectors on one PostgreSQL."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.evaluation import evaluator
from alerts.evaluation.counting import count_requests, read_tally
from alerts.evaluation.evaluator import Evaluator
from alerts.objectives import GoodEvents, Objective
from rig.postgresql import PostgreSQL
from store.alerting.slo_counts import read_counted_range
from store.database import open_database
from store.errors import LeaseLost
from store.leases import EVALUATION, Leases
from store.writer import Writer
from telemetry.requests import RequestTimeline

pytestmark = pytest.mark.real

S = 10**9
START_S = 1_790_000_010
NOW_S = START_S + 3_600
EXPIRES_S = 0.5

Row = Callable[..., RequestTimeline]


@pytest.fixture
def database(postgresql: PostgreSQL) -> Iterator[Callable[[], Engine]]:
    url = postgresql.new_url()
    with ExitStack() as opened:

        def make() -> Engine:
            engine = open_database(url)
            opened.callback(engine.dispose)
            return engine

        yield make


def write(engine: Engine, request_row: Row, numbers: range, every_s: int = 0) -> None:
    """Store requests. The requests of each hundred begin at `START_S`."""
    rows = [
        request_row(received_unix_ns=(START_S + each % 100 * every_s) * S + each)
        for each in numbers
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)


def stored(engine: Engine, goodput: GoodEvents) -> int:
    kept = read_counted_range(engine, goodput.digest)
    assert kept is not None
    return read_tally(engine, goodput, 0, kept.until_unix_s).history.counts(0, NOW_S).events


def test_a_stopped_evaluator_does_not_overwrite_what_is_to_be_counted_again(
    database: Callable[[], Engine],
    request_row: Row,
    objective: Callable[..., Objective],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first evaluator reads 100 of 200 requests and then loses the lease.

    Before the first evaluator stores its counts, the second one removes the mark of the other 100
    requests.
    """
    one, other = database(), database()
    leases = [Leases(each, [EVALUATION], expires_s=EXPIRES_S) for each in (one, other)]
    second = Evaluator(other, [objective()], alone=True)
    write(one, request_row, range(100), every_s=20)

    def stopped(*about: Any) -> Any:
        found = count_requests(*about)
        time.sleep(EXPIRES_S * 1.2)
        write(other, request_row, range(100, 200), every_s=20)
        leases[1].beat()
        with leases[1].acting(EVALUATION) as term:
            assert term is not None
            assert second._recount(NOW_S)
        return found

    monkeypatch.setattr(evaluator, "count_requests", stopped)
    first = Evaluator(one, [objective()], alone=False)
    leases[0].beat()
    with leases[0].acting(EVALUATION), pytest.raises(LeaseLost):
        first.evaluate(NOW_S)
    leases[1].beat()
    with leases[1].acting(EVALUATION):
        second.evaluate(NOW_S)
    goodput = objective().indicator
    assert isinstance(goodput, GoodEvents)
    assert stored(one, goodput) == 200
    for each in leases:
        each.release()


def test_the_cache_counts_what_other_collectors_store(
    database: Callable[[], Engine], request_row: Row, objective: Callable[..., Objective]
) -> None:
    """Only the holder of the lease removes the marks of new rows, so it counts every request."""
    one, other = database(), database()
    goodput = objective().indicator
    assert isinstance(goodput, GoodEvents)
    evaluating = Evaluator(one, [objective()], alone=True)
    for turn in range(4):
        now_s = START_S + 60 + 15 * turn
        for engine, first in ((one, 0), (other, 50)):
            write(engine, request_row, range(100 * turn + first, 100 * turn + first + 50))
        evaluating.evaluate(now_s)
        known = read_tally(one, goodput, START_S - 60, now_s // 15 * 15, evaluating._count)
        assert known.history.counts(START_S - 60, now_s).events == 100 * (turn + 1)
