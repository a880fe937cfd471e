import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alerts.evaluation.counting import count_requests, read_tally
from alerts.evaluation.evaluator import Evaluator
from alerts.objectives import Goodput
from alerts.openslo.reader import OBJECTIVES, load
from collector.server import Collector
from collector.testing import running
from server.retention_task import RetentionPeriods, begin, retain
from store.alerting.incidents import evaluated_until, read_incidents
from store.database import open_database
from store.queries import request_count, request_table
from store.writer import Writer
from telemetry.corroborated_time import CorroboratedClock
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.hostile.otlp_messages import S, record, send_spans

MINUTE_S = 60
DAY_S = 86_400
START_S = 1_790_000_010
STEP_S = 15
BURN_S = 7 * MINUTE_S
"""Duration of the observed burn, in seconds. The page fires four minutes after the burn's start."""
JUMP_S = range(3 * MINUTE_S, 5 * MINUTE_S)
"""The seconds with a wrong clock. The page fires during this time."""


class World:
    """A Tailspan with a SQLite file and a port, in simulated time.

    Args:
        path: the path of the database.
        history: rows stored at the start.
        error_s: a function that returns the error of the system clock after a number of seconds.
        same_host: whether senders use Tailspan's clock.
    """

    def __init__(
        self,
        path: Path,
        history: list[RequestTimeline],
        error_s: Callable[[int], int],
        same_host: bool = False,
    ) -> None:
        self.at_s = 0
        self._error_s = error_s
        self._same_host = same_host
        self.engine: Engine = open_database(f"sqlite:///{path}")
        with Writer(self.engine) as writer:
            writer.submit(history, []).result(30)
        self.rows = len(history)
        self.clock = CorroboratedClock(self.system_ns, lambda: self.at_s * S)
        (self.objective,) = (each for each in load([OBJECTIVES]).objectives if each.name == "chat")
        self.evaluator = Evaluator(self.engine, [self.objective], keep_s=7 * DAY_S)
        self.page_s: int | None = None
        begin(self.engine, self.clock)

    def system_ns(self) -> int:
        return (START_S + self.at_s + self._error_s(self.at_s)) * S

    def run(self) -> None:
        with Writer(self.engine) as writer, self._collector(writer) as collector:
            for self.at_s in range(0, BURN_S, STEP_S):
                now_ns = self.system_ns() if self._same_host else (START_S + self.at_s) * S
                sent = [record(now_ns - ago_s * S - S, ttft_s=3.0) for ago_s in (0, 5, 10)]
                assert not send_spans(collector, sent, "r0").HasField("partial_success")
                self.rows += len(sent)
                for incident in self.evaluator.evaluate(self.clock() // S):
                    if incident.severity == "page" and self.page_s is None:
                        self.page_s = self.at_s
                if self.at_s % MINUTE_S == 0:
                    assert asyncio.run(retain(self.engine, RetentionPeriods(), self.clock)) == 0

    @contextmanager
    def _collector(self, writer: Writer) -> Iterator[Collector]:
        made = Collector(
            writer, [], grpc_port=0, http_port=0, clock=self.clock, keep_ns=7 * DAY_S * S
        )
        with running(made) as collector:
            yield collector

    def check(self) -> None:
        """Check that no row is lost or moved, and that the stored counts equal the counts of the
        rows."""
        ever = Window(0, 2**63 - 1)
        assert request_count(self.engine, ever) == self.rows
        received = request_table(self.engine, ever)["received_unix_ns"].to_pylist()
        assert max(received) <= (START_S + BURN_S) * S
        goodput = self.objective.indicator
        assert isinstance(goodput, Goodput)
        until_s = START_S + BURN_S
        tally = read_tally(self.engine, goodput, START_S - 3600, until_s).history
        for each in count_requests(self.engine, goodput, START_S - 3600, until_s, STEP_S):
            counts = tally.counts(each.until_unix_s - STEP_S, each.until_unix_s)
            assert (counts.bad, counts.events) == (each.bad, each.good + each.bad)
        evaluated = evaluated_until(self.engine, self.objective.name)
        assert evaluated is not None
        assert START_S + BURN_S - 3 * STEP_S <= evaluated <= START_S + BURN_S
        pages = [row for row in read_incidents(self.engine, "chat") if row.severity == "page"]
        assert len(pages) == 1
        assert START_S <= pages[0].fired_unix_s <= START_S + BURN_S


@pytest.fixture
def history(request_row: Callable[..., RequestTimeline]) -> list[RequestTimeline]:
    """Return an hour of good requests, and some that are nearly a week old.

    The requests of the hour arrive in one minute of every four, so that few rollups are built.
    """
    hour = [minute_s + at_s for minute_s in range(-3600, 0, 240) for at_s in range(0, 60, 3)]
    instants = [*hour, *range(-7 * DAY_S + 1800, -7 * DAY_S + 1900, 5)]
    return [
        request_row(
            number,
            received_unix_ns=(START_S + at_s) * S,
            e2e_s=1.0,
            ttft_s=0.1,
            output_tokens=2,
            decode_s=0.01,
            streamed=True,
        )
        for number, at_s in enumerate(instants)
    ]


def right(_at_s: int) -> int:
    return 0


@pytest.fixture(scope="module")
def undisturbed() -> Callable[..., int]:
    known: dict[str, int] = {}

    def page_s(path: Path, history: list[RequestTimeline]) -> int:
        if not known:
            world = World(path, history, right)
            world.run()
            world.check()
            assert world.page_s is not None
            assert world.page_s in JUMP_S
            known["page"] = world.page_s
            world.engine.dispose()
        return known["page"]

    return page_s


@pytest.mark.parametrize(("jump_s", "same_host"), [(8 * DAY_S, True), (-30 * MINUTE_S, False)])
def test_a_jump_for_two_minutes_delays_no_page_and_deletes_nothing(
    tmp_path: Path,
    history: list[RequestTimeline],
    undisturbed: Callable[..., int],
    jump_s: int,
    same_host: bool,
) -> None:
    world = World(
        tmp_path / "jump.db", history, lambda at_s: jump_s if at_s in JUMP_S else 0, same_host
    )
    world.run()
    world.check()
    assert world.page_s is not None
    assert world.page_s <= undisturbed(tmp_path / "right.db", history) + STEP_S
    world.engine.dispose()


@pytest.mark.parametrize("error_s", [8 * DAY_S, -30 * MINUTE_S])
def test_a_start_with_a_wrong_clock_delays_no_page_and_deletes_nothing(
    tmp_path: Path, history: list[RequestTimeline], undisturbed: Callable[..., int], error_s: int
) -> None:
    """The clock stays wrong until after the page has fired."""
    world = World(tmp_path / "start.db", history, lambda at_s: error_s if at_s < JUMP_S.stop else 0)
    world.run()
    world.check()
    assert world.page_s is not None
    assert world.page_s <= undisturbed(tmp_path / "right.db", history) + STEP_S
    world.engine.dispose()
