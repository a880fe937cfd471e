from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import (
    EVALUATION_S,
    SETTLED_S,
    count_requests,
    counts_between,
    read_tally,
    step_counts,
    store_tally,
)
from alerts.expression import parse
from alerts.fields import GOOD, WHERE
from alerts.objectives import Goodput
from alerts.slices import Slices
from store.alerting.slo_counts import read_counted_range
from store.writer import Writer
from telemetry.requests import Outcome, RequestTimeline

Fill = Callable[[range], None]


S = 10**9
START_S = 1_790_000_000
DAY_S = 86_400

FAST = Goodput(None, parse("ttft_s <= 0.5", GOOD))
SLICED = replace(FAST, slices=Slices(300, Fraction(7, 10), "70 %"))
FASTER = Goodput(parse("tenant == 'a'", WHERE), parse("ttft_s <= 0.1", GOOD))

Row = Callable[..., RequestTimeline]


@pytest.fixture
def fill(engine: Engine, request_row: Row) -> Callable[[range], None]:
    """Store one request per minute: every fifth is bad, and every seventh is aborted early."""

    def commit(minutes: range) -> None:
        rows = []
        for minute in minutes:
            about: dict[str, object] = {"received_unix_ns": (START_S + 60 * minute) * S}
            if minute % 5 == 0:
                about["ttft_s"] = 2.0
            elif minute % 7 == 0:
                about |= {"outcome": Outcome.ABORT, "ttft_s": None, "output_tokens": 0}
                about["e2e_s"] = 0.3
            rows.append(request_row(**about, tenant="a" if minute % 2 else "b"))
        with Writer(engine) as writer:
            writer.submit(rows, []).result(10)

    return commit


def totals(engine: Engine, goodput: Goodput, to_s: int) -> tuple[int, int, dict[str, int]]:
    tally = read_tally(engine, goodput, to_s - 30 * DAY_S, to_s)
    counts = tally.history.counts(to_s - 30 * DAY_S, to_s)
    return counts.bad, counts.events, tally.excluded()


def test_an_empty_store_counts_nothing(engine: Engine) -> None:
    store_tally(engine, FAST, START_S)
    tally = read_tally(engine, FAST, START_S - 100, START_S)
    assert tally.since_s is None
    assert tally.history.window(100, START_S).counts.events == 0


def test_counts_of_selected_instants_equal_those_of_all(engine: Engine, fill: Fill) -> None:
    fill(range(700))
    now_s = START_S + 700 * 60
    from_s = now_s - 30 * DAY_S
    instants = [now_s - each for each in (300, 3_600, 7_200, DAY_S, 9 * DAY_S)]
    for kept_until_s in (None, now_s - 7_000, now_s):
        if kept_until_s is not None:
            store_tally(engine, FAST, kept_until_s)
        whole = read_tally(engine, FAST, from_s, now_s)
        some = read_tally(engine, FAST, from_s, now_s, instants=instants)
        assert some.since_s == whole.since_s
        assert some.excluded() == whole.excluded()
        for start_s in [*instants, from_s]:
            assert some.excluded(start_s) == whole.excluded(start_s)
            assert some.history.counts(start_s, now_s) == whole.history.counts(start_s, now_s)


@pytest.mark.parametrize("off_s", [0, 137])
def test_stored_and_recomputed_slices_are_equal(engine: Engine, fill: Fill, off_s: int) -> None:
    fill(range(200))
    now_s = START_S + 200 * 60 + off_s
    starts = [now_s - each for each in (600, 7_200, 9 * 3_600)]

    def found() -> list[object]:
        tally = read_tally(engine, SLICED, starts[-1], now_s, instants=starts)
        steps = step_counts(engine, SLICED, starts[-1], now_s, 3_600)
        whole = sum((each.counts for each in steps), EventCounts(0, 0))
        assert whole == tally.history.counts(starts[-1], now_s)
        return [steps, *(tally.history.counts(each, now_s) for each in starts)]

    anew = found()
    requests = read_tally(engine, FAST, 0, now_s).history
    slices = [
        requests.counts(end_s - 300, end_s)
        for end_s in range(-(-START_S // 300) * 300, now_s + 1, 300)
    ]
    bad = sum(10 * (each.events - each.bad) < 7 * each.events for each in slices)
    assert anew[-1] == EventCounts(bad, sum(each.events > 0 for each in slices))
    assert 0 < bad < len(slices)
    assert counts_between(engine, SLICED, starts[-1], now_s) == anew[-1]
    for kept_until_s in (now_s - 7_000, now_s):
        store_tally(engine, SLICED, kept_until_s)
        assert found() == anew


def test_stored_and_recomputed_counts_are_equal(engine: Engine, fill: Fill) -> None:
    fill(range(700))
    now_s = START_S + 700 * 60
    anew = {each.digest: totals(engine, each, now_s) for each in (FAST, FASTER)}
    bad, events, excluded = anew[FAST.digest]
    assert bad == 140
    assert excluded["aborted"] == sum(1 for m in range(700) if m % 7 == 0 and m % 5 != 0)
    assert events + excluded["aborted"] == 700
    for each in (FAST, FASTER):
        store_tally(engine, each, now_s - 300 * 60)
        assert totals(engine, each, now_s) == anew[each.digest]
        store_tally(engine, each, now_s)
        store_tally(engine, each, now_s)
        assert totals(engine, each, now_s) == anew[each.digest]


def test_later_requests_are_added(engine: Engine, fill: Fill) -> None:
    fill(range(100))
    store_tally(engine, FAST, START_S + 100 * 60)
    fill(range(100, 200))
    _, events, excluded = totals(engine, FAST, START_S + 200 * 60)
    assert events + sum(excluded.values()) == 200


def test_only_settled_counts_are_stored(engine: Engine, fill: Fill) -> None:
    """Rows of recent requests may still be on their way."""
    fill(range(100))
    now_s = START_S + 100 * 60
    store_tally(engine, FAST, now_s)
    kept = read_counted_range(engine, FAST.digest)
    assert kept
    assert now_s - SETTLED_S - EVALUATION_S < kept.until_unix_s <= now_s - SETTLED_S


def test_a_changed_objective_is_counted_again(engine: Engine, fill: Fill) -> None:
    fill(range(60))
    now_s = START_S + 60 * 60
    store_tally(engine, FAST, now_s)
    assert read_counted_range(engine, FASTER.digest) is None
    tally = read_tally(engine, FASTER, now_s - 30 * DAY_S, now_s)
    assert tally.since_s == START_S
    assert tally.history.counts(0, now_s).events > 0


def test_a_request_counts_when_it_ended(engine: Engine, request_row: Row) -> None:
    with Writer(engine) as writer:
        row = request_row(received_unix_ns=START_S * S, e2e_s=90.5, ttft_s=9.0)
        writer.submit([row], []).result(10)
    assert count_requests(engine, FAST, START_S, START_S + 90, 1) == []
    (found,) = count_requests(engine, FAST, START_S + 90, START_S + 100, 1)
    assert (found.until_unix_s, found.bad) == (START_S + 91, 1)
    (minute,) = count_requests(engine, FAST, START_S, START_S + 120, 60)
    assert minute.until_unix_s % 60 == 0
