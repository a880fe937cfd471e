from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alerts.evaluation.evaluator import Evaluator
from alerts.openslo.reader import OBJECTIVES, load
from analysis.cost import SECOND_NS, sustained_rate
from store.billing.billed_requests import billed_requests
from store.database import open_database
from store.retention import delete_older_rollups
from store.rollups.tables import HOUR_S
from store.writer import Writer
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.window import Window

START_S = 1_763_634_000
LENGTH_S = 1_200
RPS = 4
SPEC = load([OBJECTIVES]).objectives


def good(place: int) -> RequestTimeline:
    """Return a good request. One of four requests is not streamed, so the objective ignores it."""
    return RequestTimeline(
        trace_id=f"{place:032x}", span_id=f"{place:016x}", request_id=f"r{place}",
        received_unix_ns=START_S * 10**9 + place * 10**9 // RPS, e2e_s=0.5, frontend_s=0.0,
        queue_s=0.0, prefill_s=0.1, decode_s=0.4, ttft_s=0.1,
        outcome=Outcome.STOP, source=Source.INSTRUMENTATION, basis=Basis.HTTP,
        model="chat", replica=f"r{place // 4 % 2}", prompt_tokens=10, output_tokens=10,
        streamed=place % 4 > 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a store with twenty minutes of good requests at a constant rate."""
    path: Path = tmp_path_factory.mktemp("steady") / "tailspan.db"
    engine = open_database(f"sqlite:///{path}")
    with Writer(engine) as writer:
        writer.submit([good(place) for place in range(LENGTH_S * RPS)], []).result(60)
    Evaluator(engine, SPEC).evaluate(START_S + LENGTH_S + 15)
    yield engine
    engine.dispose()


def minutes(first: int, last: int) -> Window:
    return Window((START_S + first * 60) * 10**9, (START_S + last * 60) * 10**9)


@pytest.mark.parametrize(
    "window",
    [minutes(0, 7), minutes(1, 6), minutes(2, 8), minutes(3, 9), minutes(-9, 4), minutes(5, 30)],
)
def test_a_steady_rate_that_meets_the_objectives_is_sustained(
    steady: Engine, window: Window
) -> None:
    """The range may cover a part of an interval, or minutes that are not counted yet."""
    assert sustained_rate(steady, window, SPEC).rps == pytest.approx(RPS, rel=0.01)


def test_the_rate_of_one_replica_is_its_part_of_the_rate(steady: Engine) -> None:
    found = sustained_rate(steady, minutes(0, 7), SPEC, "r1").rps
    assert found == pytest.approx(RPS / 2, rel=0.01)


def test_the_newest_minutes_are_counted_from_the_rows(steady: Engine) -> None:
    """Their counts are stored ten minutes later. The last minute may lack rows."""
    found = sustained_rate(steady, minutes(13, 20), SPEC)
    assert found.rps == pytest.approx(RPS, rel=0.01)
    assert found.requests == pytest.approx(6 * 60 * RPS * 3 / 4, abs=RPS)


def test_a_range_without_requests_has_no_rate(steady: Engine) -> None:
    found = sustained_rate(steady, minutes(25, 30), SPEC)
    assert (found.requests, found.rps) == (0, None)


def test_without_rollups_per_minute_the_rate_is_the_same(tmp_path: Path) -> None:
    """The requests are then known only for whole hours. The hour has the same mean rate as the
    window: few of its minutes have requests, because rollups of many minutes take long."""
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    hour_s = START_S // HOUR_S * HOUR_S
    in_window = range(1_800, 2_400)
    # Counting begins anew after five minutes without requests.
    in_other_minutes = sorted([*range(0, 1_800, 200), *range(2_400, HOUR_S, 200)] * 200)
    rows = [
        replace(good(place), received_unix_ns=(hour_s + at_s) * SECOND_NS)
        for place, at_s in enumerate([*in_other_minutes, *in_window])
    ]
    assert len(rows) == HOUR_S
    with Writer(engine) as writer:
        writer.submit(rows, []).result(60)
    Evaluator(engine, SPEC).evaluate(hour_s + HOUR_S + 15)
    delete_older_rollups(engine, HOUR_S * SECOND_NS, None, (hour_s + 3 * HOUR_S) * SECOND_NS)
    window = Window((hour_s + in_window.start) * SECOND_NS, (hour_s + in_window.stop) * SECOND_NS)
    assert billed_requests(engine, window, ()).window != window
    assert sustained_rate(engine, window, SPEC).rps == pytest.approx(1, rel=0.01)
    engine.dispose()
