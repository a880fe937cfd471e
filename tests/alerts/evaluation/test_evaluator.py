import shutil
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation import evaluator
from alerts.evaluation.counting import count_requests, read_tally
from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.status import status_at, status_edges
from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput, Objective
from store.alerting.incidents import evaluated_until, read_incidents, store_evaluation
from store.alerting.slo_marks import Mark, read_marks
from store.database import open_database
from store.retention import delete_older
from store.simulation_removal import delete_simulation
from store.writer import Writer
from telemetry.incidents import IncidentRow
from telemetry.requests import RequestTimeline, Source
from tests.alerts.conftest import request_rows

Row = Callable[..., RequestTimeline]
Store = Callable[[str], Engine]
MakeObjective = Callable[..., Objective]


S = 10**9
START_S = 1_790_000_010
HOUR_S = 3600
BEGAN_S = START_S + HOUR_S
BAD_S = 1200
END_S = START_S + 2 * HOUR_S


GOODPUT = Goodput(None, parse("ttft_s <= 0.5 and tpot_s <= 0.05", GOOD))


def write(engine: Engine, rows: Sequence[RequestTimeline]) -> None:
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)


def counted(engine: Engine, to_s: int = END_S) -> EventCounts:
    return read_tally(engine, GOODPUT, 0, to_s).history.counts(0, to_s)


@pytest.fixture(scope="module")
def two_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with one request every ten seconds. Those of twenty minutes are bad."""
    row, path = request_rows(), tmp_path_factory.mktemp("two_hours") / "store.db"
    engine = open_database(f"sqlite:///{path}")
    rows = [
        row(received_unix_ns=at_s * S, ttft_s=3.0 if BEGAN_S <= at_s < BEGAN_S + BAD_S else 0.1)
        for at_s in range(START_S, END_S, 10)
    ]
    write(engine, rows)
    engine.dispose()
    return path


@pytest.fixture
def store(tmp_path: Path, two_hours: Path) -> Store:
    def make(name: str) -> Engine:
        shutil.copy(two_hours, tmp_path / f"{name}.db")
        return open_database(f"sqlite:///{tmp_path}/{name}.db")

    return make


@pytest.fixture
def run(store: Store, objective: MakeObjective) -> Callable[..., list[IncidentRow]]:
    """Evaluate at each instant with a new evaluator, as after restarts; return the incidents."""

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
    first_s = START_S + 1800
    often = run("often", range(first_s, END_S, 900))
    seldom = run("seldom", [first_s, first_s + HOUR_S, END_S])
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


def test_an_open_incident_stays_open_after_a_restart(
    store: Store, objective: MakeObjective
) -> None:
    engine = store("open")
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(BEGAN_S)
    (page, *_) = evaluator.evaluate(BEGAN_S + 1000)
    assert page.ended_s is None
    (row, *_) = read_incidents(engine, "chat", open_only=True)
    assert row.ended_unix_s is None
    assert row.budget_spent is not None
    assert evaluator.evaluate(BEGAN_S + 1000) == []
    engine.dispose()


def test_an_empty_store_has_no_incident(tmp_path: Path, objective: MakeObjective) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/empty.db")
    assert Evaluator(engine, [objective()]).evaluate(START_S) == []
    assert read_incidents(engine, "chat") == []
    engine.dispose()


def test_late_requests_are_counted(
    store: Store, objective: MakeObjective, request_row: Row
) -> None:
    """Late requests do not change earlier verdicts. Requests from before the history do not
    count."""
    engine = store("late")
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(END_S)
    before = counted(engine)
    for offset_s in (HOUR_S, -HOUR_S):
        late = [
            request_row(
                trace_id=f"{10**9 + offset_s + n:032x}",
                received_unix_ns=(START_S + offset_s + n) * S,
                ttft_s=3.0,
            )
            for n in range(10)
        ]
        write(engine, late)
        evaluator.evaluate(END_S + 15)
        before += EventCounts(10, 10) if offset_s > 0 else EventCounts(0, 0)
        assert counted(engine) == before
        evaluator.evaluate(END_S + 30)
        assert counted(engine) == before
    assert read_tally(engine, GOODPUT, 0, END_S).since_s == pytest.approx(START_S, abs=15)
    engine.dispose()


def test_an_evaluation_ends_while_commits_continue(
    store: Store, objective: MakeObjective, request_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow database, new requests may be committed after each read of the marks."""
    engine = store("busy")
    reads = 0

    def slow_read(*args: Any) -> list[Mark]:
        nonlocal reads
        reads += 1
        assert reads < 10
        late_ns = (END_S - 100 + reads) * S
        write(engine, [request_row(trace_id=f"{reads:032x}", received_unix_ns=late_ns, ttft_s=0.1)])
        return read_marks(*args)

    monkeypatch.setattr(evaluator, "read_marks", slow_read)
    several = Evaluator(engine, [objective()])
    before = counted(engine)
    for instant in (END_S, END_S + 60):
        several.evaluate(instant)
    assert evaluated_until(engine, "chat") == (END_S + 60 - 15) // 15 * 15
    assert counted(engine) == EventCounts(before.bad, before.events + reads)
    engine.dispose()


def test_late_requests_of_a_stopped_process_are_counted_by_the_next(
    store: Store, objective: MakeObjective, request_row: Row
) -> None:
    engine = store("stopped")
    Evaluator(engine, [objective()]).evaluate(END_S)
    late = [
        request_row(trace_id=f"{10**9 + n:032x}", received_unix_ns=(START_S + n) * S, ttft_s=3.0)
        for n in range(500)
    ]
    before = counted(engine)
    write(engine, late)
    Evaluator(engine, [objective()]).evaluate(END_S + 15)
    assert counted(engine) == before + EventCounts(500, 500)
    engine.dispose()


def test_an_incident_is_simulated_unless_real_requests_alone_would_cause_it(
    tmp_path: Path, objective: MakeObjective, request_row: Row
) -> None:
    """A simulated incident becomes real when it would continue with the real requests alone."""
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
    write(engine, rows)
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


def test_a_late_request_does_not_remove_counts_of_deleted_requests(
    store: Store, objective: MakeObjective, request_row: Row
) -> None:
    engine = store("forgotten")
    evaluator = Evaluator(engine, [objective()], keep_s=2 * HOUR_S)
    now_s = END_S + HOUR_S // 2
    evaluator.evaluate(now_s)
    before = counted(engine, now_s)
    delete_older(engine, 2 * HOUR_S * S, now_s * S, pause=lambda: None)
    late = [request_row(trace_id="f" * 32, received_unix_ns=(START_S + 60) * S, ttft_s=3.0)]
    write(engine, late)
    evaluator.evaluate(now_s + 15)
    assert counted(engine, now_s) == before
    engine.dispose()


def test_an_evaluation_in_the_future_does_not_mute_alerts(
    store: Store, objective: MakeObjective
) -> None:
    pages = {}
    first_s = BEGAN_S - 60
    then_s = range(first_s + 30, BEGAN_S + 750, 180)
    for name, instants in {
        "never-ahead": [first_s, *then_s],
        "half an hour ahead": [first_s, first_s + 1800, *then_s],
        "eight days ahead": [first_s, first_s + 8 * 86_400, *then_s],
    }.items():
        engine = store(name)
        for at_s in instants:
            Evaluator(engine, [objective()]).evaluate(at_s)
        pages[name] = [row for row in read_incidents(engine, "chat") if row.severity == "page"]
        assert evaluated_until(engine, "chat") == (instants[-1] - 15) // 15 * 15
        kept = read_tally(engine, GOODPUT, 0, END_S).history
        recounted = {
            each.until_unix_s: (each.bad, each.good)
            for each in count_requests(engine, GOODPUT, 0, END_S, 15)
        }
        for each_s in range(START_S // 15 * 15, END_S, 15):
            bad, good = recounted.get(each_s, (0, 0))
            assert kept.counts(each_s - 15, each_s) == EventCounts(bad, bad + good)
        engine.dispose()
    assert len(pages["never-ahead"]) == 1
    assert all(each == pages["never-ahead"] for each in pages.values())


def test_an_incident_that_only_began_in_the_future_ends(
    store: Store, objective: MakeObjective
) -> None:
    engine = store("ghosts")
    at_s = BEGAN_S + 1100
    now_s = (at_s - 15) // 15 * 15
    real = IncidentRow("chat", "page", BEGAN_S + 300, BEGAN_S, at_s + 900, None, BEGAN_S, "9", None)
    ghost = IncidentRow(
        "chat", "ticket", at_s + 600, at_s + 60, at_s + 900, None, at_s + 700, "9", None
    )
    store_evaluation(engine, "chat", at_s + 900, [real, ghost])
    Evaluator(engine, [objective()]).evaluate(at_s)
    found = {(row.severity, row.fired_unix_s): row for row in read_incidents(engine, "chat")}
    kept = found["page", real.fired_unix_s]
    assert (kept.ended_unix_s, kept.last_unix_s) == (None, now_s)
    assert found["ticket", ghost.fired_unix_s].ended_unix_s == ghost.last_unix_s
    engine.dispose()


def test_a_slow_clock_does_not_remove_counts_of_deleted_requests(
    store: Store, objective: MakeObjective
) -> None:
    engine = store("behind")
    evaluator = Evaluator(engine, [objective()])
    evaluator.evaluate(END_S)
    before = counted(engine)
    delete_older(engine, 3 * HOUR_S // 2 * S, END_S * S, pause=lambda: None)
    evaluator.evaluate(START_S + 60)
    evaluator.evaluate(END_S)
    assert counted(engine) == before
    engine.dispose()


def test_counting_old_requests_again_takes_a_limited_share_of_the_time(
    store: Store, objective: MakeObjective, request_row: Row
) -> None:
    """Rows that are hours old must not delay the counting of recent requests."""
    engine = store("slow")
    elapsed = iter([0.0, *[float(20 * number) for number in range(1, 200)]])
    Evaluator(engine, [objective()]).evaluate(END_S)
    evaluator = Evaluator(engine, [objective()], elapsed_s=lambda: next(elapsed))
    events = [counted(engine).events]
    for number in range(8):
        late = [request_row(trace_id=f"{10**9 + number:032x}", received_unix_ns=START_S * S)]
        write(engine, late)
        evaluator.evaluate(END_S + 15 * (number + 1))
        events.append(counted(engine).events)
    assert events[1] == events[0] + 1
    assert events[2:5] == [events[1]] * 3
    assert events[-1] > events[4] + 3
    engine.dispose()


def test_slices_burn_and_a_calendar_month_ends(store: Store, objective: MakeObjective) -> None:
    engine = store("slices")
    sliced = objective(
        method="Timeslices",
        slices=", timeSliceTarget: 0.9, timeSliceWindow: 1m",
        period="1M",
        window="calendar: {startTime: '2026-01-01 00:00:00', timeZone: UTC}",
    )
    evaluator = Evaluator(engine, [sliced])
    for at_s in range(BEGAN_S - 600, END_S, 600):
        evaluator.evaluate(at_s)
    pages = [row for row in read_incidents(engine, "chat") if row.severity == "page"]
    assert len(pages) == 1
    assert abs(pages[0].began_unix_s - BEGAN_S) <= 120
    assert isinstance(sliced.indicator, Goodput)
    at_s = END_S + 1500  # the last hour has no bad slice
    tally = read_tally(engine, sliced.indicator, min(status_edges(sliced, at_s)), at_s)
    status = status_at(sliced, tally.history, tally.since_s, tally.excluded(), at_s)
    assert status.span.length_s == 30 * 24 * HOUR_S  # length of September 2026
    assert status.period.bad == 21  # the first and the last minute are partly bad
    assert status.period.events == pytest.approx(120, abs=1)
    spent = Fraction(21, status.period.events) * 100 * status.covered
    assert status.budget_left == 1 - spent
    assert status.exhausted_in_s is None
    next_month = status_at(sliced, tally.history, tally.since_s, {}, status.span.end_s)
    assert next_month.period == EventCounts(0, 0)
    engine.dispose()


def test_a_past_that_arrives_at_a_start_is_evaluated_at_the_same_instant(
    tmp_path: Path,
    request_row: Callable[..., RequestTimeline],
    objective: Callable[..., Objective],
) -> None:
    """If no request has arrived by the time of an evaluation, the evaluation is repeated when
    requests arrive."""
    engine = open_database(f"sqlite:///{tmp_path}/start.db")
    evaluator, now_s = Evaluator(engine, [objective()]), END_S
    assert evaluator.evaluate(now_s) == []
    assert evaluated_until(engine, "chat") is None
    rows = [
        request_row(received_unix_ns=at_s * S, ttft_s=3.0)
        for at_s in range(now_s - HOUR_S, now_s, 5)
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    assert "page" in {each.severity for each in evaluator.evaluate(now_s)}
    engine.dispose()
