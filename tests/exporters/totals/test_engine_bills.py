from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.totals.engine_bills import EngineBill, EngineBills
from telemetry.engines import EngineSample

Sample = Callable[..., EngineSample]
KEY = ("r1", 0)
NS = 10**9


def billed(samples: list[EngineSample], clock: Any, usd_per_s: float | None = 0.5) -> EngineBill:
    bills = EngineBills(clock, lambda replica, engine: usd_per_s)
    for sample in samples:
        bills.add(sample)
    return bills.view()[KEY]


def busy(
    sample_row: Sample, now: int, share: float, at: int, process: int, began: int
) -> EngineSample:
    """Return a sample of a process that started after `began` s, and is busy for this share."""
    return sample_row(
        process=process,
        started_unix_ns=now + began * NS,
        at_unix_ns=now + at * NS,
        busy_s_total=(at - began) * share,
    )


def test_time_between_steps_is_idle(sample_row: Sample, clock: Any) -> None:
    now = clock.unix_ns
    found = billed(
        [sample_row(at_unix_ns=now + at * NS, busy_s_total=at * 0.6) for at in range(11)], clock
    )
    assert found.up_s == pytest.approx(10)
    assert found.idle_s == pytest.approx(4)
    assert found.usd == pytest.approx(5)
    assert found.idle_usd == pytest.approx(2)


def test_a_new_engine_is_billed_from_its_start(sample_row: Sample, clock: Any) -> None:
    started = clock.unix_ns - 30 * NS
    young = billed([sample_row(started_unix_ns=started, busy_s_total=12.0)], clock)
    assert young.up_s == pytest.approx(30)
    assert young.idle_s == pytest.approx(18)
    old = billed([sample_row(busy_s_total=12.0)], clock)
    assert (old.up_s, old.idle_s) == (0, 0)


def test_a_long_silence_is_neither_billed_nor_idle(sample_row: Sample, clock: Any) -> None:
    now = clock.unix_ns
    reported = [(0, 0.0), (1, 1.0), (100, 50.0), (101, 50.5)]
    found = billed(
        [sample_row(at_unix_ns=now + at * NS, busy_s_total=busy) for at, busy in reported], clock
    )
    assert found.up_s == pytest.approx(2)
    assert found.idle_s == pytest.approx(0.5)


def test_processes_of_one_engine_share_its_time(sample_row: Sample, clock: Any) -> None:
    """Only one of two API servers sends step totals."""
    now = clock.unix_ns
    found = billed(
        [
            sample_row(
                process=process,
                at_unix_ns=now + at * NS,
                busy_s_total=at * 0.5 if process == 1 else None,
            )
            for at in range(11)
            for process in (1, 2)
        ],
        clock,
    )
    assert found.up_s == pytest.approx(10)
    assert found.idle_s == pytest.approx(5)


@pytest.mark.parametrize("process", [1, 2])
def test_servers_of_one_name_are_each_billed(sample_row: Sample, clock: Any, process: int) -> None:
    now = clock.unix_ns
    first = [(at, 1, -100) for at in range(61)]
    second = [(at, process, 20) for at in range(20, 61)]
    found = billed([busy(sample_row, now, 0.8, *row) for row in sorted(first + second)], clock)
    assert found.up_s == pytest.approx(100)
    assert found.idle_s == pytest.approx(20)


@pytest.mark.parametrize("process", [1, 2])
def test_a_restarted_server_is_billed_once(sample_row: Sample, clock: Any, process: int) -> None:
    """The old process' last sample may arrive after the new process' first one."""
    now = clock.unix_ns
    rows = [(at, 1, 0) for at in range(30)] + [(at, process, 50) for at in range(50, 80)]
    rows[29], rows[30] = rows[30], rows[29]
    found = billed([busy(sample_row, now, 1.0, *row) for row in rows], clock)
    assert found.up_s == pytest.approx(79)


def test_without_a_price_there_are_seconds_and_no_dollars(sample_row: Sample, clock: Any) -> None:
    found = billed([sample_row(started_unix_ns=clock.unix_ns - 9 * NS)], clock, None)
    assert found.up_s == pytest.approx(9)
    assert (found.usd_per_s, found.usd, found.idle_usd) == (None, None, None)


def test_without_busy_time_idle_time_is_unknown(sample_row: Sample, clock: Any) -> None:
    now = clock.unix_ns
    found = billed([sample_row(at_unix_ns=now + at, busy_s_total=None) for at in (0, NS)], clock)
    assert found.idle_s is None
    assert found.idle_usd is None
    assert found.usd == pytest.approx(0.5)


def test_the_price_is_removed_when_the_engine_is_silent(sample_row: Sample, clock: Any) -> None:
    bills = EngineBills(clock, lambda replica, engine: 0.5)
    bills.add(sample_row())
    assert bills.view()[KEY].usd_per_s == 0.5
    clock.advance(61)
    assert bills.view()[KEY].usd_per_s is None


@given(
    st.lists(st.tuples(st.floats(0.1, 90), st.floats(0, 2), st.booleans()), min_size=1, max_size=30)
)
def test_no_counter_ever_decreases(values: list[tuple[float, float, bool]]) -> None:
    """Prometheus interprets a decrease as a reset."""
    now = 1_790_000_000 * NS
    bills = EngineBills(lambda: now, lambda replica, engine: 0.25)
    at, started, busy_s = now, now - 3_600 * NS, 0.0
    before = EngineBill(None, None, 0.0, 0.0, 0.0, 0.0)
    for silence_s, share, restarts in values:
        at += round(silence_s * NS)
        started, busy_s = (at, 0.0) if restarts else (started, busy_s + share * silence_s)
        bills.add(EngineSample(
            replica="r1", engine=0, process=1, at_unix_ns=at, started_unix_ns=started,
            busy_s_total=busy_s,
        ))  # fmt: skip
        found = bills.view()[KEY]
        assert found.up_s >= before.up_s
        assert (found.usd or 0.0) >= (before.usd or 0.0)
        assert (found.idle_s or 0.0) >= (before.idle_s or 0.0)
        assert (found.idle_usd or 0.0) >= (before.idle_usd or 0.0)
        before = found


def test_a_sample_of_the_future_stops_no_bill(sample_row: Sample, clock: Any) -> None:
    now = clock.unix_ns
    ahead = sample_row(at_unix_ns=now + 8 * 86_400 * NS, busy_s_total=0.0)
    present = [sample_row(at_unix_ns=now + at * NS, busy_s_total=0.0) for at in range(11)]
    found = billed([ahead, *present], clock)
    assert found.up_s == pytest.approx(10, abs=1)
    assert found.usd == pytest.approx(5, abs=0.5)


def test_the_number_of_invented_processes_is_bounded(sample_row: Sample, clock: Any) -> None:
    bills = EngineBills(clock, lambda replica, engine: None)

    def add(process: int, second: int) -> None:
        at_unix_ns = clock.unix_ns + second * NS + process
        started_unix_ns = clock.unix_ns - 60 * NS
        bills.add(
            sample_row(
                process=process,
                started_unix_ns=started_unix_ns,
                at_unix_ns=at_unix_ns,
                steps_total=second,
                busy_s_total=0.0,
            )
        )

    for process in range(1, 500):
        add(process, 1)
        add(process, 2)
        add(process - 1, 3)
    (engine,) = bills._engines.values()
    assert len(engine.servers) <= 64
    assert len(engine.processes) <= 64
