"""The live evaluator over a store: restarts change nothing."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alerts.burnrate import Counts
from alerts.counting import count_requests, read_tally
from alerts.evaluator import Evaluator
from alerts.objectives import Goodput, Objective
from alerts.status import status_at, status_edges
from store.alerting.incidents import IncidentRow, evaluated_until, keep_evaluation, read_incidents
from store.database import open_database
from store.retention import delete_older
from store.simulation_removal import delete_simulation
from store.writer import Writer
from telemetry.requests import RequestTimeline, Source

S = 10**9
START_S = 1_790_000_010
HOUR_S = 3600
BEGAN_S = START_S + 2 * HOUR_S
END_S = START_S + 4 * HOUR_S


@pytest.fixture
def store(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> Callable[[str], Engine]:
    """Four hours of a request each five seconds, all bad for half an hour."""

    def make(name: str) -> Engine:
        engine = open_database(f"sqlite:///{tmp_path}/{name}.db")
        rows = [
            request_row(
                received_unix_ns=at_s * S,
                ttft_s=3.0 if BEGAN_S <= at_s < BEGAN_S + 1800 else 0.1,
            )
            for at_s in range(START_S, END_S, 5)
        ]
        with Writer(engine) as writer:
            writer.submit(rows, []).result(10)
        return engine

    return make


@pytest.fixture
def run(
    store: Callable[[str], Engine], objective: Callable[..., Objective]
) -> Callable[..., list[IncidentRow]]:
    """The incidents after evaluating at these instants, each by an evaluator of its own."""

    def go(name: str, at_s: Sequence[int]) -> list[IncidentRow]:
        engine = store(name)
        for each in at_s:
            Evaluator(engine, [objective()]).evaluate(each)
        found = read_incidents(engine, "chat")
        assert evaluated_until(engine, "chat") == (at_s[-1] - 15) // 15 * 15
        engine.dispose()
        return found

    return go


def test_a_restart_changes_no_verdict(run: Callable[..., list[IncidentRow]]) -> None:
    """Evaluated every quarter hour or with pauses of two hours, it is the same burn."""
    first_s = START_S + 1800
    often = run("often", range(first_s, END_S, 900))
    seldom = run("seldom", [first_s, first_s + 2 * HOUR_S, END_S - (END_S - first_s) % 900])
    pages = [row for row in often if row.severity == "page"]
    assert len(pages) == 1
    assert abs(pages[0].began_unix_s - BEGAN_S) <= 60
    assert pages[0].ended_unix_s is not None
    for mine, other in zip(often, seldom, strict=True):
        assert (mine.severity, mine.fired_unix_s, mine.ended_unix_s, mine.peak_burn) == (
            other.severity,
            other.fired_unix_s,
            other.ended_unix_s,
            other.peak_burn,
        )


def test_an_open_incident_is_kept_as_it_is(
    store: Callable[[str], Engine], objective: Callable[..., Objective]
) -> None:
    """Its end is not known, and so not told."""
    engine = store("open")
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(BEGAN_S)
    (page, *_) = evaluator.evaluate(BEGAN_S + 1500)
    assert page.ended_s is None
    (row, *_) = read_incidents(engine, "chat", open_only=True)
    assert row.ended_unix_s is None
    assert row.budget_spent is not None
    assert evaluator.evaluate(BEGAN_S + 1500) == []
    engine.dispose()


def test_an_empty_store_has_no_incident(
    tmp_path: Path, objective: Callable[..., Objective]
) -> None:
    """No data is no burn."""
    engine = open_database(f"sqlite:///{tmp_path}/empty.db")
    assert Evaluator(engine, [objective()]).evaluate(START_S) == []
    assert read_incidents(engine, "chat") == []
    engine.dispose()


def test_requests_that_come_late_are_counted_all_the_same(
    store: Callable[[str], Engine],
    objective: Callable[..., Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """What was kept is counted again from where they begin; the verdicts of then stand."""
    engine = store("late")
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(END_S)
    before = read_tally(engine, goodput, 0, END_S).history.counts(0, END_S)
    for offset_s in (HOUR_S, -HOUR_S):
        late = [
            request_row(
                trace_id=f"{10**9 + offset_s + n:032x}",
                received_unix_ns=(START_S + offset_s + n) * S,
                ttft_s=3.0,
            )
            for n in range(10)
        ]
        with Writer(engine) as writer:
            writer.submit(late, []).result(10)
        evaluator.evaluate(END_S + 15)
        before += Counts(10, 10)
        tally = read_tally(engine, goodput, 0, END_S)
        assert tally.history.counts(0, END_S) == before
        evaluator.evaluate(END_S + 30)
        assert read_tally(engine, goodput, 0, END_S).history.counts(0, END_S) == before
    assert read_tally(engine, goodput, 0, END_S).since_s == START_S - HOUR_S
    engine.dispose()


def test_late_requests_of_a_process_that_was_stopped_are_counted_by_the_next(
    store: Callable[[str], Engine],
    objective: Callable[..., Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """Whatever stopped it after their commit: what is to be counted is in the database."""
    engine = store("stopped")
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    Evaluator(engine, [objective()]).evaluate(END_S)
    late = [
        request_row(trace_id=f"{10**9 + n:032x}", received_unix_ns=(START_S + n) * S, ttft_s=3.0)
        for n in range(500)
    ]
    before = read_tally(engine, goodput, 0, END_S).history.counts(0, END_S)
    with Writer(engine) as writer:
        writer.submit(late, []).result(10)
    Evaluator(engine, [objective()]).evaluate(END_S + 15)
    counts = read_tally(engine, goodput, 0, END_S).history.counts(0, END_S)
    assert counts == before + Counts(500, 500)
    engine.dispose()


def test_an_incident_is_simulated_if_real_requests_alone_would_not_have_made_it(
    tmp_path: Path,
    objective: Callable[..., Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """And an incident that goes on with real ones alone becomes real."""
    engine = open_database(f"sqlite:///{tmp_path}/mixed.db")
    simulated_until_s = BEGAN_S + 1800
    rows = []
    for at_s in range(START_S, END_S, 5):
        bad = at_s >= BEGAN_S
        simulated = bad and at_s < simulated_until_s
        if not bad or simulated or at_s >= simulated_until_s:
            source = Source.SIMULATOR if simulated else Source.INSTRUMENTATION
            rows.append(
                request_row(received_unix_ns=at_s * S, ttft_s=3.0 if bad else 0.1, source=source)
            )
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(BEGAN_S)
    evaluator.evaluate(simulated_until_s)
    (page,) = [each for each in read_incidents(engine, "chat") if each.severity == "page"]
    assert page.simulated
    evaluator.evaluate(END_S)
    (page,) = [each for each in read_incidents(engine, "chat") if each.severity == "page"]
    assert not page.simulated
    delete_simulation(engine)
    assert page in read_incidents(engine, "chat")
    engine.dispose()


def test_a_request_that_comes_after_its_time_does_not_undo_what_was_counted_of_those_gone(
    store: Callable[[str], Engine],
    objective: Callable[..., Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """Of an objective's month the store keeps a week: the rest cannot be counted again."""
    engine = store("forgotten")
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    evaluator = Evaluator(engine, [objective()], keep_s=2 * HOUR_S)
    now_s = END_S + HOUR_S
    evaluator.evaluate(now_s)
    before = read_tally(engine, goodput, 0, now_s).history.counts(0, now_s)
    delete_older(engine, 2 * HOUR_S * S, now_s * S, pause=lambda: None)
    late = [request_row(trace_id="f" * 32, received_unix_ns=(START_S + 60) * S, ttft_s=3.0)]
    with Writer(engine) as writer:
        writer.submit(late, []).result(10)
    evaluator.evaluate(now_s + 15)
    assert read_tally(engine, goodput, 0, now_s).history.counts(0, now_s) == before
    engine.dispose()


@pytest.mark.parametrize("ahead_s", [1800, 8 * 86_400])
def test_an_evaluation_in_the_future_mutes_nothing(
    store: Callable[[str], Engine], objective: Callable[..., Objective], ahead_s: int
) -> None:
    """The clock was ahead once, before the burn: the page fires at the instant it would have."""
    pages = {}
    until_s = BEGAN_S + 750
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    for name, instants in {
        "never-ahead": range(BEGAN_S - 60, until_s, 15),
        "ahead": [BEGAN_S - 60, BEGAN_S - 60 + ahead_s, *range(BEGAN_S - 45, until_s, 15)],
    }.items():
        engine = store(name)
        for at_s in instants:
            Evaluator(engine, [objective()]).evaluate(at_s)
        pages[name] = [row for row in read_incidents(engine, "chat") if row.severity == "page"]
        assert evaluated_until(engine, "chat") == (instants[-1] - 15) // 15 * 15
        # Nothing is counted twice, and nothing is skipped.
        kept = read_tally(engine, goodput, 0, END_S).history
        recounted = {
            each.until_unix_s: (each.bad, each.good)
            for each in count_requests(engine, goodput, 0, END_S, 15)
        }
        for each_s in range(START_S // 15 * 15, END_S, 15):
            bad, good = recounted.get(each_s, (0, 0))
            assert kept.counts(each_s - 15, each_s) == Counts(bad, bad + good)
        engine.dispose()
    assert len(pages["ahead"]) == 1
    assert pages["ahead"] == pages["never-ahead"]


def test_an_incident_that_only_began_in_the_future_ends(
    store: Callable[[str], Engine], objective: Callable[..., Objective]
) -> None:
    """And one that is going on stays, as of the present."""
    engine = store("ghosts")
    at_s = BEGAN_S + 1500
    now_s = (at_s - 15) // 15 * 15
    real = IncidentRow("chat", "page", BEGAN_S + 300, BEGAN_S, at_s + 900, None, BEGAN_S, "9", None)
    ghost = IncidentRow(
        "chat", "ticket", at_s + 600, at_s + 60, at_s + 900, None, at_s + 700, "9", None
    )
    keep_evaluation(engine, "chat", at_s + 900, [real, ghost])
    Evaluator(engine, [objective()]).evaluate(at_s)
    found = {(row.severity, row.fired_unix_s): row for row in read_incidents(engine, "chat")}
    kept = found["page", real.fired_unix_s]
    assert (kept.ended_unix_s, kept.last_unix_s) == (None, now_s)
    assert found["ticket", ghost.fired_unix_s].ended_unix_s == ghost.last_unix_s
    engine.dispose()


def test_a_clock_behind_does_not_undo_counts_of_requests_that_are_gone(
    store: Callable[[str], Engine], objective: Callable[..., Objective]
) -> None:
    """They could not be counted again."""
    engine = store("behind")
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(END_S)
    before = read_tally(engine, goodput, 0, END_S).history.counts(0, END_S)
    delete_older(engine, 2 * HOUR_S * S, END_S * S, pause=lambda: None)
    evaluator.evaluate(START_S + 60)
    evaluator.evaluate(END_S)
    assert read_tally(engine, goodput, 0, END_S).history.counts(0, END_S) == before
    engine.dispose()


def test_counting_old_requests_again_takes_a_share_of_the_time(
    store: Callable[[str], Engine],
    objective: Callable[..., Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """One that says something of hours ago each second does not keep the rest waiting; what it
    said is counted later."""
    engine = store("slow")
    elapsed = iter([0.0, *[float(20 * number) for number in range(1, 200)]])
    goodput = objective().indicator
    assert isinstance(goodput, Goodput)
    Evaluator(engine, [objective()]).evaluate(END_S)
    evaluator = Evaluator(engine, [objective()], elapsed_s=lambda: next(elapsed))
    counted = [read_tally(engine, goodput, 0, END_S).history.counts(0, END_S).events]
    for number in range(8):
        late = [request_row(trace_id=f"{10**9 + number:032x}", received_unix_ns=START_S * S)]
        with Writer(engine) as writer:
            writer.submit(late, []).result(10)
        evaluator.evaluate(END_S + 15 * (number + 1))
        counted.append(read_tally(engine, goodput, 0, END_S).history.counts(0, END_S).events)
    assert counted[1] == counted[0] + 1
    assert counted[2:5] == [counted[1]] * 3
    assert counted[-1] > counted[4] + 3
    engine.dispose()


def test_slices_burn_and_a_calendar_month_ends(
    store: Callable[[str], Engine], objective: Callable[..., Objective]
) -> None:
    """A burn of bad minutes is one page, and what it spent is a share of the calendar month."""
    engine = store("slices")
    sliced = objective(
        method="Timeslices",
        slices=", timeSliceTarget: 0.9, timeSliceWindow: 1m",
        period="1M",
        window="calendar: {startTime: '2026-01-01 00:00:00', timeZone: UTC}",
    )
    evaluator = Evaluator(engine, [sliced])
    for at_s in range(BEGAN_S - HOUR_S, END_S, 600):
        evaluator.evaluate(at_s)
    pages = [row for row in read_incidents(engine, "chat") if row.severity == "page"]
    assert len(pages) == 1
    assert abs(pages[0].began_unix_s - BEGAN_S) <= 120
    assert isinstance(sliced.indicator, Goodput)
    tally = read_tally(engine, sliced.indicator, min(status_edges(sliced, END_S)), END_S)
    status = status_at(sliced, tally.history, tally.since_s, tally.excluded(), END_S)
    assert status.span.length_s == 30 * 24 * HOUR_S  # September 2026
    assert status.period.bad == 31  # the first and the last are bad in part
    assert status.period.events == pytest.approx(240, abs=1)
    spent = Fraction(31, status.period.events) * 100 * status.covered
    assert status.budget_left == 1 - spent
    assert status.exhausted_in_s is None
    next_month = status_at(sliced, tally.history, tally.since_s, {}, status.span.end_s)
    assert next_month.period == Counts(0, 0)
    engine.dispose()
