from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from store.errors import RowRefused
from store.queries import gpu_table
from store.replicas.engine_starts import (
    MAX_OF_REPLICA,
    MAX_UNSEEN,
    UNSEEN_NS,
    StartKey,
    deletable,
    delete_starts,
    in_force,
    starts_of,
)
from store.rollups.bucket_builder import build_marked
from store.rollups.marks import SAMPLE_ROLLUPS, SECOND_NS, begin, no_longer_whole
from store.rollups.tables import MINUTE_S
from store.simulation_removal import delete_simulation
from telemetry.gpus import GpuSample
from telemetry.starts import EngineStart
from telemetry.window import Window

START_NS = 1_763_634_000_000_000_000


def a_start(number: int = 0, **about: Any) -> EngineStart:
    plain: dict[str, Any] = {
        "replica": "a",
        "engine": 0,
        "process": 7,
        "at_unix_ns": START_NS + number * 10**9,
        "config": "c0ffee00",
        "arguments": '{"scheduler.max_num_seqs": 16}',
    }
    return EngineStart(**{**plain, **about})


def test_a_repeated_start_is_kept_once(engine: Engine, write: Callable[..., None]) -> None:
    write(a_start(), a_start())
    write(a_start())
    assert in_force(engine) == [a_start()]


def test_the_latest_start_is_in_force(engine: Engine, write: Callable[..., None]) -> None:
    later = a_start(60, process=8, config="decade00")
    write(a_start(), later, a_start(5, engine=1), a_start(9, replica="b"))
    assert [(s.replica, s.engine, s.config) for s in in_force(engine)] == [
        ("a", 0, "decade00"),
        ("a", 1, "c0ffee00"),
        ("b", 0, "c0ffee00"),
    ]
    assert in_force(engine, START_NS + 4 * 10**9) == [a_start()]


def test_fingerprints_are_found_by_prefix(engine: Engine, write: Callable[..., None]) -> None:
    write(a_start(), a_start(60), a_start(5, config="c0de0000"))
    assert [start.config for start in starts_of(engine, "c0")] == ["c0de0000", "c0ffee00"]
    assert starts_of(engine, "c0ff") == [a_start(60)]
    assert starts_of(engine, "%") == starts_of(engine, "c_") == []


def test_simulated_starts_and_gpus_are_deleted(
    engine: Engine,
    write: Callable[..., None],
    gpu_row: Callable[..., GpuSample],
) -> None:
    write(a_start(), a_start(replica="sim-0", simulated=True))
    write(gpu_row(1), gpu_row(2, simulated=True))
    assert delete_simulation(engine) == 2
    assert in_force(engine) == [a_start()]
    assert gpu_table(engine, Window(0, 2**63 - 1))["simulated"].to_pylist() == [False]


def test_an_unstorable_start_is_refused(write: Callable[..., None]) -> None:
    with pytest.raises(RowRefused, match="config"):
        write(a_start(config="\ud800"))


def test_the_starts_of_some_replicas_are_selected(
    engine: Engine, write: Callable[..., None]
) -> None:
    write(a_start(), *(a_start(replica=f"made-up-{number}") for number in range(20)))
    assert in_force(engine, replicas={"a", "b"}) == [a_start()]
    assert in_force(engine, replicas=()) == []


HOUR_NS = 3_600 * 10**9
DAY_NS = 24 * HOUR_NS
NOW_NS = START_NS + 500 * DAY_NS


def gone(*starts: StartKey, seen: str = "", hours_ns: int | None = 400 * DAY_NS) -> list[StartKey]:
    return list(deletable(starts, seen.__contains__, 7 * DAY_NS, hours_ns, NOW_NS))


def ago(ns: int, replica: str = "a", engine: int = 0) -> StartKey:
    return StartKey(replica, engine, 7, NOW_NS - ns)


def test_the_start_of_an_engine_without_samples_is_deleted_after_an_hour() -> None:
    """A real engine sends samples every second."""
    young, made_up, ended = ago(UNSEEN_NS - 1), ago(UNSEEN_NS + 1), ago(30 * DAY_NS)
    assert gone(young, made_up, ended) == [made_up]
    assert gone(young, made_up, ended, seen="a") == []


def test_a_start_is_deleted_when_no_bill_needs_it() -> None:
    first, newest, other = ago(450 * DAY_NS), ago(401 * DAY_NS), ago(410 * DAY_NS, engine=1)
    assert gone(first, newest, other, seen="a") == [first]
    assert gone(first, newest, other) == [first, other, newest]
    assert gone(first, newest, other, hours_ns=None) == []


def test_the_number_of_starts_is_bounded_for_any_names() -> None:
    loop = [ago(number * HOUR_NS) for number in range(MAX_OF_REPLICA + 5, 0, -1)]
    assert gone(*loop, seen="a") == loop[:5]
    old = [ago(30 * DAY_NS + number, f"x{number}") for number in range(MAX_UNSEEN + 5, 0, -1)]
    assert gone(*old, ago(30 * DAY_NS, "b"), seen="b") == old[:5]


def test_starts_of_invented_engines_are_deleted(
    engine: Engine,
    write: Callable[..., None],
    sample_row: Callable[..., Any],
) -> None:
    write(a_start(), *(a_start(replica=f"made-up-{number}") for number in range(450)))
    write(sample_row(1))
    now_ns = START_NS + 2 * HOUR_NS
    assert delete_starts(engine, 7 * DAY_NS, 400 * DAY_NS, now_ns) == 450
    assert in_force(engine) == [a_start()]
    assert delete_starts(engine, 7 * DAY_NS, 400 * DAY_NS, now_ns) == 0


def test_the_start_of_an_engine_that_sends_no_samples_is_kept(
    engine: Engine, write: Callable[..., None], request_row: Callable[..., Any]
) -> None:
    """With `OTEL_METRICS_EXPORTER=none`, the plugin sends only requests and starts."""
    write(a_start(), a_start(replica="made-up"), request_row(1, replica="a"))
    now_s = START_NS // SECOND_NS + 7_200
    build_marked(engine, now_s)
    assert delete_starts(engine, 7 * DAY_NS, 400 * DAY_NS, now_s * SECOND_NS) == 1
    assert in_force(engine) == [a_start()]


def test_starts_of_invented_engines_are_deleted_even_if_rows_are_kept_for_ever(
    engine: Engine, write: Callable[..., None], sample_row: Callable[..., Any]
) -> None:
    """The samples of engines that ended before the last deletion of rows may be deleted."""
    begin(engine)
    no_longer_whole(engine, MINUTE_S, START_NS // SECOND_NS - 60, SAMPLE_ROLLUPS)
    ended = a_start(replica="ended", at_unix_ns=START_NS - 3 * HOUR_NS)
    write(a_start(), ended, a_start(replica="made-up"))
    write(sample_row(1))
    assert delete_starts(engine, None, None, START_NS + 2 * HOUR_NS) == 1
    assert [each.replica for each in in_force(engine)] == ["a", "ended"]
