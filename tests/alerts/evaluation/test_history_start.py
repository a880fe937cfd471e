"""The history of an objective begins with continuous data. The age of the oldest row does not
determine the length of the history."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from alerts.burnrate import EventCounts, State
from alerts.evaluation.counting import EVALUATION_S, MAX_GAP_S, read_tally
from alerts.evaluation.evaluator import ARRIVAL_S, Evaluator
from alerts.evaluation.status import ObjectiveStatus, status_at
from alerts.objectives import Goodput, Objective
from exporters.totals.slo import LATE_NS
from store.alerting.slo_counts import read_counted_range
from store.simulation_removal import delete_simulation
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline, Source

Row = Callable[..., RequestTimeline]
MakeObjective = Callable[..., Objective]

S = 10**9
DAY_S = 86_400
START_S = 1_790_000_010
NOW_S = START_S + 1_440


def write(
    engine: Engine, rows: Sequence[RequestTimeline], samples: Sequence[EngineSample] = ()
) -> None:
    with Writer(engine) as writer:
        writer.submit(rows, samples).result(30)


@pytest.fixture
def traffic(request_row: Row) -> list[RequestTimeline]:
    """Return one request per second for 24 minutes. One in 50 is bad."""
    return [
        request_row(received_unix_ns=at_s * S, ttft_s=3.0 if at_s % 50 == 0 else 0.1)
        for at_s in range(START_S, NOW_S)
    ]


def old_rows(request_row: Row, number: int) -> list[RequestTimeline]:
    """Return bad requests that are spread evenly over the six days before `START_S`."""
    return [
        request_row(
            received_unix_ns=(START_S - (at + 1) * 6 * DAY_S // number) * S,
            ttft_s=3.0,
        )
        for at in range(number)
    ]


def status(engine: Engine, about: Objective, at_s: int = NOW_S) -> ObjectiveStatus:
    assert isinstance(about.indicator, Goodput)
    tally = read_tally(engine, about.indicator, at_s - 30 * DAY_S, at_s)
    return status_at(about, tally.history, tally.since_s, tally.excluded(), at_s)


@pytest.mark.parametrize("number", [1, 100])
@pytest.mark.parametrize("evaluated", [False, True])
def test_old_rows_do_not_lengthen_the_history(
    engine: Engine,
    objective: MakeObjective,
    request_row: Row,
    traffic: list[RequestTimeline],
    number: int,
    evaluated: bool,
) -> None:
    """Not even a hundred old rows lengthen the history, because the gaps between them are too long.
    The old rows are from before the history, so they do not count."""
    about = objective()
    write(engine, traffic)
    if evaluated:
        Evaluator(engine, [about]).evaluate(NOW_S)
    before = status(engine, about)
    assert before.since_s == pytest.approx(START_S, abs=EVALUATION_S)
    assert before.period.events == len(traffic)
    assert before.budget_left is not None
    assert before.budget_left > 0.99
    assert State.COLD_START in before.states.values()
    write(engine, old_rows(request_row, number))
    if evaluated:
        assert Evaluator(engine, [about]).evaluate(NOW_S + 2 * ARRIVAL_S) == []
    assert status(engine, about) == before


def test_an_old_row_in_an_empty_store_does_not_begin_the_history(
    engine: Engine, objective: MakeObjective, request_row: Row, traffic: list[RequestTimeline]
) -> None:
    about = objective()
    write(engine, old_rows(request_row, 1))
    for at_s in range(START_S - 60, START_S, 15):
        Evaluator(engine, [about]).evaluate(at_s)
    for first in range(0, len(traffic), 240):
        write(engine, traffic[first : first + 240])
        Evaluator(engine, [about]).evaluate(START_S + first + 255)
    found = status(engine, about)
    assert found.since_s == pytest.approx(START_S, abs=EVALUATION_S)
    assert found.period.events == pytest.approx(len(traffic), abs=1)
    assert found.severity is None


def test_continuous_data_that_arrives_after_the_first_evaluation_is_history(
    engine: Engine, objective: MakeObjective, traffic: list[RequestTimeline]
) -> None:
    """A sender may send the oldest data last."""
    about = objective()
    write(engine, traffic[-60:])
    Evaluator(engine, [about]).evaluate(NOW_S)
    assert status(engine, about).since_s == pytest.approx(NOW_S - 60, abs=EVALUATION_S)
    write(engine, traffic[:-60])
    Evaluator(engine, [about]).evaluate(NOW_S + EVALUATION_S)
    found = status(engine, about)
    assert found.since_s == pytest.approx(START_S, abs=EVALUATION_S)
    assert found.period == EventCounts(28, len(traffic))


def test_time_with_little_traffic_is_history_while_tailspan_counts(
    engine: Engine, objective: MakeObjective, request_row: Row
) -> None:
    """Neither a gap nor a restart moves the start of the history. A late row counts if its request
    arrived after the start."""
    about = objective()
    rows = [request_row(received_unix_ns=(START_S + 1200 * n) * S) for n in range(12)]
    for n, row in enumerate(rows):
        if n != 8:
            write(engine, [row])
        Evaluator(engine, [about]).evaluate(START_S + 1200 * n + 60)
    write(engine, [rows[8]])
    at_s = START_S + 1200 * 12
    Evaluator(engine, [about]).evaluate(at_s)
    found = status(engine, about, at_s)
    assert found.since_s == pytest.approx(START_S, abs=EVALUATION_S)
    assert found.period.events == 12
    assert found.covered == pytest.approx(1200 * 12 / (30 * DAY_S), rel=0.01)


def test_a_new_objective_has_the_history_of_the_others(
    engine: Engine, objective: MakeObjective, request_row: Row
) -> None:
    for n in range(6):
        write(engine, [request_row(received_unix_ns=(START_S + 1200 * n) * S)])
        Evaluator(engine, [objective()]).evaluate(START_S + 1200 * n + 60)
    new, at_s = objective(name="new", good="ttft_s <= 0.4"), START_S + 7200
    Evaluator(engine, [objective(), new]).evaluate(at_s)
    assert status(engine, new, at_s).since_s == pytest.approx(START_S, abs=EVALUATION_S)
    assert status(engine, new, at_s).period.events == 6


def test_idle_time_with_engine_samples_is_history(
    engine: Engine, objective: MakeObjective, request_row: Row
) -> None:
    rows = [request_row(received_unix_ns=(START_S + at_s) * S) for at_s in (0, 3_000, 7_000)]
    samples = [
        EngineSample(
            replica="a",
            engine=0,
            process=7,
            at_unix_ns=(START_S + at_s) * S,
            started_unix_ns=START_S * S,
        )
        for at_s in range(0, 7_200, 60)
    ]
    write(engine, rows, samples)
    found = status(engine, objective(), START_S + 7_200)
    assert (found.since_s, found.period.events) == (START_S, 3)


def test_the_history_of_real_requests_does_not_begin_with_a_simulation(
    engine: Engine, objective: MakeObjective, traffic: list[RequestTimeline]
) -> None:
    about = objective()
    write(engine, [replace(row, source=Source.SIMULATOR) for row in traffic[:60]])
    Evaluator(engine, [about]).evaluate(START_S + 75)
    delete_simulation(engine)
    write(engine, traffic[600:])
    Evaluator(engine, [about]).evaluate(NOW_S)
    assert status(engine, about).since_s == pytest.approx(START_S + 600, abs=EVALUATION_S)


def test_prometheus_does_not_count_an_old_row_either() -> None:
    """`/metrics` counts a request as late if it is older than the longest gap in continuous
    data."""
    assert MAX_GAP_S * S == LATE_NS


def test_continuous_data_from_before_the_retention_does_not_extend_the_history(
    engine: Engine, objective: MakeObjective, traffic: list[RequestTimeline]
) -> None:
    about, keep_s = objective(), 3_600 + 600
    write(engine, traffic[-60:])
    Evaluator(engine, [about], keep_s=keep_s).evaluate(NOW_S)
    write(engine, traffic[:-60])
    Evaluator(engine, [about], keep_s=keep_s).evaluate(NOW_S + EVALUATION_S)
    kept = read_counted_range(engine, about.indicator.digest)  # type: ignore[union-attr]
    assert kept is not None
    assert kept.from_unix_s == pytest.approx(NOW_S - 600, abs=2 * EVALUATION_S)
