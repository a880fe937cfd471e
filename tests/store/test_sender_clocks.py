"""Senders whose clock is ahead, and who send samples to several collectors."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from store.retention import delete_older
from store.row_values import gpu_values, sample_values
from store.schema import GPUS, SAMPLES, STARTS
from store.sender_clocks import SENDERS, apply_sender_clock_corrections
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.starts import EngineStart

SECOND_NS = 10**9
SENT_NS = 1_763_634_000 * SECOND_NS
STARTED_NS = SENT_NS - 3_600 * SECOND_NS


Submit = Callable[..., None]


@pytest.fixture
def submit(
    engine: Engine, sample_row: Callable[..., EngineSample], gpu_row: Callable[..., GpuSample]
) -> Submit:
    """Stores the samples of one second, corrected by a collector that measures `lead_s`."""

    def commit(
        ahead_s: float | None, number: int, replica: str = "a", lead_s: float | None = None
    ) -> None:
        ahead_ns = round((ahead_s or 0.0) * 1e9)
        at: dict[str, Any] = {
            "replica": replica,
            "at_unix_ns": SENT_NS + number * SECOND_NS - ahead_ns,
            "clock_ahead_s": ahead_s,
        }
        sample = sample_row(started_unix_ns=STARTED_NS - ahead_ns, **at)
        start = EngineStart(engine=0, process=7, config="c", arguments="{}", **at)
        with Writer(engine) as writer:
            leads_ns = {} if lead_s is None else {replica: round(lead_s * 1e9)}
            rows = ([sample], [start], [gpu_row(**at)])
            writer.submit([], *rows, leads_ns=leads_ns).result(30)

    return commit


def corrections(engine: Engine) -> list[float | None]:
    sent = SAMPLES.c.at_unix_ns + func.coalesce(SAMPLES.c.clock_ahead_s, 0.0) * SECOND_NS
    with engine.connect() as connection:
        return list(connection.scalars(select(SAMPLES.c.clock_ahead_s).order_by(sent)))


def test_several_collectors_give_one_series(engine: Engine, submit: Submit) -> None:
    """Bills take samples with different corrected starts as different engine processes."""
    for number, ahead_s in enumerate((5.25, 5.5, 4.75, 5.0)):
        submit(ahead_s, number)
    with engine.connect() as connection:
        started = connection.scalars(select(SAMPLES.c.started_unix_ns).distinct()).all()
        assert started == [STARTED_NS - 5_250_000_000]
        for table in (SAMPLES, GPUS, STARTS):
            columns = select(table.c.at_unix_ns, table.c.clock_ahead_s).order_by(table.c.at_unix_ns)
            assert connection.execute(columns).all() == [
                (SENT_NS + number * SECOND_NS - 5_250_000_000, 5.25) for number in range(4)
            ], table.name


def test_a_changed_clock_is_corrected_anew(engine: Engine, submit: Submit) -> None:
    for number, ahead_s in enumerate((5.25, 60.5, 60.25)):
        submit(ahead_s, number)
    with engine.connect() as connection:
        ahead = select(SAMPLES.c.clock_ahead_s).order_by(SAMPLES.c.clock_ahead_s)
        assert connection.scalars(ahead).all() == [5.25, 60.5, 60.5]


def test_a_collector_that_measures_a_smaller_lead_corrects_too(
    engine: Engine, submit: Submit
) -> None:
    """0.7 s is too small to begin a correction, and too large to end it."""
    for number, (ahead_s, lead_s) in enumerate([(1.1, 1.1), (None, 0.7)] * 3):
        submit(ahead_s, number, lead_s=lead_s)
    assert corrections(engine) == [1.1] * 6
    with engine.connect() as connection:
        started = connection.scalars(select(SAMPLES.c.started_unix_ns).distinct()).all()
        assert started == [STARTED_NS - 1_100_000_000]
        for table in (GPUS, STARTS):
            assert connection.scalars(select(table.c.clock_ahead_s).distinct()).all() == [1.1]


def test_a_small_lead_alone_begins_no_correction(engine: Engine, submit: Submit) -> None:
    submit(5.25, 0, "b", 5.25)
    submit(None, 1, lead_s=0.7)
    assert corrections(engine) == [5.25, None]


def test_a_correction_ends_when_no_collector_supports_it(engine: Engine, submit: Submit) -> None:
    at = [
        *[(0, 1.1, 1.1), (20, None, 0.7), (40, None, 0.7)],
        (65, None, 0.4),  # another collector measured 0.7 s 25 s earlier
        *[(71, None, 0.4), (72, None, 0.7)],
        *[(73, 1.5, 1.5), (74, None, 0.4)],
    ]
    for number, ahead_s, lead_s in at:
        submit(ahead_s, number, lead_s=lead_s)
    assert corrections(engine) == [*[1.1] * 4, *[None] * 2, *[1.5] * 2]


def test_a_collector_without_a_measurement_follows_the_others(
    engine: Engine, submit: Submit
) -> None:
    for number, ahead_s in [(0, 1.1), (30, None), (31, None)]:
        submit(ahead_s, number)
    assert corrections(engine) == [1.1, 1.1, None]


def test_a_clock_that_was_set_right_is_not_corrected(engine: Engine, submit: Submit) -> None:
    """A collector without the newest messages may still correct it."""
    for number, (ahead_s, lead_s) in enumerate([(60.5, 60.5), (None, -0.1), (60.0, 60.0)]):
        submit(ahead_s, number, lead_s=lead_s)
    assert corrections(engine) == [60.5, None, 60.5]


def test_a_collector_that_started_after_a_clock_was_set_back_does_not_correct_it(
    engine: Engine, submit: Submit
) -> None:
    """The last confirmation is 2 h later than the new samples, on the sender's clock."""
    for number, ahead_s, lead_s in [(7_200, 7_200.0, 7_200.0), (40, None, -0.1), (41, None, None)]:
        submit(ahead_s, number, lead_s=lead_s)
    assert corrections(engine) == [None, None, 7_200.0]
    submit(7_200.0, 7_242, lead_s=7_200.0)
    submit(None, 43)
    assert corrections(engine) == [None, None, None, 7_200.0, 7_200.0]


@pytest.mark.parametrize("lead_ns", [-(10**7), None])
def test_a_correction_of_a_gpu_sample_moves_no_engine_sample_of_the_same_commit(
    engine: Engine,
    sample_row: Callable[..., EngineSample],
    gpu_row: Callable[..., GpuSample],
    lead_ns: int | None,
) -> None:
    """The GPU exporter's clock is 5 s ahead. The engine's clock is correct."""
    at: dict[str, Any] = {"replica": "a", "at_unix_ns": SENT_NS}
    sampled = sample_values(sample_row(started_unix_ns=STARTED_NS, **at))
    gpu = gpu_values(gpu_row(**at, clock_ahead_s=5.0))
    with engine.begin() as connection:
        samples, gpus = apply_sender_clock_corrections(
            connection,
            [(SAMPLES, [[sampled], []]), (GPUS, [[], [gpu]])],
            [{} if lead_ns is None else {"a": lead_ns}, {}],
        )
    assert (samples, gpus) == ([sampled], [gpu])


@pytest.mark.parametrize("ahead_s", [None, 7.0])
def test_other_senders_keep_their_own_correction(
    engine: Engine, submit: Submit, ahead_s: float | None
) -> None:
    submit(5.25, 0)
    submit(ahead_s, 1, "b")
    with engine.connect() as connection:
        of_b = select(SAMPLES.c.clock_ahead_s).where(SAMPLES.c.replica == "b")
        assert connection.scalars(of_b).all() == [ahead_s]


def test_an_absurd_correction_is_stored_as_it_is(engine: Engine, submit: Submit) -> None:
    """292 years are too large for the table."""
    for number, ahead_s in enumerate((5.25, 9_223_372_037.0)):
        submit(ahead_s, number)
    with engine.connect() as connection:
        ahead = select(SAMPLES.c.clock_ahead_s).order_by(SAMPLES.c.clock_ahead_s)
        assert connection.scalars(ahead).all() == [5.25, 9_223_372_037.0]


def test_corrections_of_senders_are_deleted_with_their_rows(engine: Engine, submit: Submit) -> None:
    if engine.dialect.name == "clickhousedb":
        return  # ClickHouse deletes old rows itself
    submit(5.25, 0)
    delete_older(engine, 60 * SECOND_NS, SENT_NS + 120 * SECOND_NS)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(SENDERS)) == 0
