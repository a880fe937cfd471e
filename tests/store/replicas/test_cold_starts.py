from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from store.replicas import cold_starts
from store.replicas.cold_starts import all_starts_between, cold_starts_between
from store.retention import delete_older
from store.simulation_removal import delete_simulation
from tests.cold_starts import START_NS, cold_start

S = 10**9


def test_starts_that_ended_in_the_window_are_read(
    engine: Engine, write: Callable[..., None]
) -> None:
    first, second, third = (cold_start(number) for number in (0, 100, 200))
    write(third, first, second)
    found = cold_starts_between(engine, START_NS + 56 * S, START_NS + 256 * S)
    assert found == [first, second]


def test_several_api_servers_report_one_start(engine: Engine, write: Callable[..., None]) -> None:
    """Both have the same span ids."""
    write(cold_start())
    write(cold_start(server_s=2.0, length_s=57.0))
    (found,) = cold_starts_between(engine, START_NS, START_NS + 100 * S)
    assert found.server_s == 1.0


def test_the_longest_report_of_a_start_is_read(engine: Engine, write: Callable[..., None]) -> None:
    """Only one API server of a pod may know the time before the first process."""
    early = START_NS - 30 * S
    write(cold_start(), cold_start(at_unix_ns=early, scheduling_s=30.0, length_s=86.0))
    (found,) = cold_starts_between(engine, START_NS - 100 * S, START_NS + 100 * S)
    assert (found.at_unix_ns, found.length_s) == (early, 86.0)


def test_a_crash_loop_is_read_up_to_a_limit(
    engine: Engine, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_starts, "MAX_STARTS", 3)
    write(*(cold_start(number) for number in range(9)))
    found = cold_starts_between(engine, START_NS, START_NS + 3_600 * S)
    assert [each.at_unix_ns // S for each in found] == [START_NS // S + n for n in (6, 7, 8)]


def test_a_crash_loop_does_not_hide_other_starts(
    engine: Engine, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_starts, "MAX_STARTS", 4)
    crashes = [
        cold_start(number, replica="b", reached="weights", failure="exit")
        for number in range(10, 19)
    ]
    ready = [cold_start(number) for number in range(3)]
    write(*ready, *crashes)
    between = engine, START_NS, START_NS + 3_600 * S
    assert cold_starts_between(*between) == ready
    assert all_starts_between(*between) == [*ready[1:], *crashes[-2:]]
    assert all_starts_between(*between, {"replica": "a"}) == ready


def test_old_starts_and_those_of_a_simulation_are_deleted(
    engine: Engine, write: Callable[..., None]
) -> None:
    write(cold_start(0), cold_start(100), cold_start(101, simulated=True))
    delete_simulation(engine)
    delete_older(engine, 10 * S, START_NS + 60 * S, pause=lambda: None)
    found = cold_starts_between(engine, START_NS, START_NS + 3_600 * S)
    if engine.dialect.name.startswith("clickhouse"):  # ClickHouse deletes old rows itself
        assert cold_start(101, simulated=True) not in found
    else:
        assert found == [cold_start(100)]


def test_a_start_that_failed_is_no_cold_start(engine: Engine, write: Callable[..., None]) -> None:
    """A server that was never ready explains no slow request."""
    starts = [cold_start(0), cold_start(1, reached="weights", failure="exit")]
    write(*starts)
    between = engine, START_NS, START_NS + 3_600 * S
    assert cold_starts_between(*between) == starts[:1]
    assert all_starts_between(*between) == starts
