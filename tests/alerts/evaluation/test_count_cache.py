import random
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from alerts.evaluation.count_cache import CountCache
from alerts.evaluation.counting import EVALUATION_S, count_requests
from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import GoodEvents, Goodput
from store.alerting.slo_marks import marks_of
from store.writer import Writer
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline, Source

S = 10**9
START_S = 1_790_000_010
FAST = Goodput(None, parse("ttft_s <= 0.5", GOOD))

Row = Callable[..., RequestTimeline]


class Counting:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int | None]] = []

    def __call__(self, engine: Engine, good: GoodEvents, *about: Any) -> Any:
        from_s, to_s, _, received_from_s = (*about, None)[:4]
        self.asked.append((from_s, to_s, received_from_s))
        return count_requests(engine, good, *about)


def test_cached_and_recomputed_counts_are_equal(engine: Engine, request_row: Row) -> None:
    chance = random.Random(3)
    fresh = CountCache()
    with Writer(engine) as writer:
        for turn in range(45):
            now_s = START_S + turn * EVALUATION_S
            rows = []
            for _ in range(8):
                e2e_s = chance.choice([0.2, 3.0, 40.0, 700.0])
                late_s = chance.choice([0.0, 0.0, 1.0, 20.0, 300.0])
                received_ns = int((now_s - late_s - e2e_s - chance.random()) * S)
                ttft_s = chance.choice([0.1, 2.0])
                rows.append(request_row(received_unix_ns=received_ns, e2e_s=e2e_s, ttft_s=ttft_s))
            rows += rows[:2]
            writer.submit(rows, []).result(10)
            if turn < 5:  # another process stored these rows
                continue
            if turn > 5:
                fresh.add_marks(marks_of([RequestRows.of(rows)]))
            fresh.begin(now_s)
            if turn % 2:
                continue
            asked = (engine, FAST, now_s - 40 * EVALUATION_S, now_s, EVALUATION_S)
            assert fresh.count(*asked) == count_requests(*asked)


def test_only_changed_steps_are_counted_again(engine: Engine, request_row: Row) -> None:
    counting = Counting()
    fresh = CountCache(counting)
    fresh.begin(START_S)

    def ask(to_s: int) -> list[tuple[int, int, int | None]]:
        counting.asked.clear()
        fresh.count(engine, FAST, START_S, to_s)
        return counting.asked

    ask(START_S + 60)
    assert ask(START_S + 60) == []
    row = request_row(received_unix_ns=(START_S + 2) * S, e2e_s=15.0)
    with Writer(engine) as writer:
        writer.submit([row], []).result(10)
    fresh.add_marks(marks_of([RequestRows.of([row])]))
    assert ask(START_S + 60) == [(START_S + 15, START_S + 30, START_S + 2)]
    assert ask(START_S + 75) == [(START_S + 60, START_S + 75, START_S + 60)]


def test_with_several_sources_everything_is_counted_again(engine: Engine, request_row: Row) -> None:
    """A later row from a better source replaces a row that was already counted."""
    fresh = CountCache()
    fresh.begin(START_S)
    about: dict[str, Any] = {"request_id": "chatcmpl-a", "e2e_s": 1.0, "ttft_s": 0.1}
    with Writer(engine) as writer:
        for source, at_s in ((Source.NATIVE, START_S + 13), (Source.INSTRUMENTATION, START_S + 15)):
            row = request_row(**about, source=source, received_unix_ns=at_s * S)
            writer.submit([row], []).result(10)
            fresh.add_marks(marks_of([RequestRows.of([row])]))
            counts = fresh.count(engine, FAST, START_S, START_S + 60)
            assert sum(each.good for each in counts) == 1
