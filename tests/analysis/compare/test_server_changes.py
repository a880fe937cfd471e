from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.compare.server_changes import STALE_NS, change_of, server_change
from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.starts import EngineStart
from telemetry.window import Window


def start(replica: str, at_s: int, config: str = "a", version: str = "0.32.0") -> EngineStart:
    return EngineStart(
        replica=replica,
        engine=0,
        process=at_s,
        at_unix_ns=at_s * 10**9,
        config=config,
        arguments="{}",
        version=version,
    )


BEFORE = [start("r0", 1), start("r1", 1)]
CONFIGURATION, VERSION = "The configuration", "The version of vLLM"
REPLICAS = "The number of replicas"


def change(*about: Any, **named: Any) -> tuple[str, int, int] | None:
    """The change with its ends in seconds."""
    found = change_of(*about, **named)
    if found is None:
        return None
    return found.what, found.from_unix_ns // 10**9, found.to_unix_ns // 10**9


def test_a_rolling_deployment_is_one_change_and_the_latest_one_counts() -> None:
    rollout = [start("r0", 100, "b"), start("r1", 160, "b")]
    assert change(BEFORE, rollout) == (CONFIGURATION, 100, 160)
    assert change(BEFORE, [*rollout, start("r0", 800, "c")]) == (CONFIGURATION, 800, 800)
    slow = replace(start("r0", 100, "b"), loading_s=40.0)
    assert change(BEFORE, [slow]) == (CONFIGURATION, 60, 100)


def test_an_upgrade_and_a_new_replica_are_changes_and_a_restart_is_none() -> None:
    assert change(BEFORE, [start("r0", 100, version="0.33.0")]) == (VERSION, 100, 100)
    assert change(BEFORE, [start("r2", 100)]) == (REPLICAS, 100, 100)
    assert change(BEFORE, [start("r0", 100)]) is None
    assert change([], [start("r0", 100), start("r1", 101)]) is None
    assert change(BEFORE, []) is None


def test_the_first_starts_of_a_range_are_the_state_before_the_others() -> None:
    """Two replicas that stop and three that start are a deploy."""
    first = [start("r0", 100), start("r1", 101)]
    again = [start("r0", 300), start("r1", 300), start("r2", 300)]
    assert change([], [*first, *again]) == (REPLICAS, 300, 300)
    assert change([], [*first, *again[:2]]) is None
    assert change([], [*first, start("r2", 701)]) is None
    assert change([], [*first, start("r2", 702)]) == (REPLICAS, 702, 702)


def sent(**last_s: int) -> dict[str, int]:
    return {name: at_s * 10**9 for name, at_s in last_s.items()}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (sent(r0=2_000, r1=1_300), (REPLICAS, 1_300, 1_300)),
        (sent(r0=2_000, r1=1_500), None),  # it may be restarting
        (sent(r0=2_000), None),  # it ended before the range
        (sent(r0=1_300, r1=1_300), None),  # the collector was away
        ({}, None),
    ],
)
def test_a_replica_that_ended_is_a_change(
    last: dict[str, int], expected: tuple[str, int, int] | None
) -> None:
    assert change(BEFORE, [], last) == expected


def test_the_end_of_a_replica_before_the_range_is_no_change() -> None:
    last = sent(r0=2_000, r1=900)
    assert change(BEFORE, [], last, from_unix_ns=1_000 * 10**9) is None
    assert change(BEFORE, [], last, from_unix_ns=800 * 10**9) is not None


@pytest.mark.parametrize(
    ("config", "version", "what"),
    [("b", "0.32.0", CONFIGURATION), ("a", "0.33.0", VERSION), ("a", "0.32.0", None)],
)
def test_new_names_in_the_place_of_old_ones_are_compared_with_them(
    config: str, version: str, what: str | None
) -> None:
    """A Kubernetes Deployment gives each pod a new name at each rollout."""
    during = [start("r2", 100, config, version), start("r3", 160, config, version)]
    found = change_of(BEFORE, during, sent(r0=110, r1=170, r2=900, r3=900))
    assert (None if found is None else found.what) == what


def test_fewer_or_more_new_names_than_old_ones_change_the_number() -> None:
    fewer = change(BEFORE, [start("r2", 100)], sent(r0=100, r1=150, r2=900))
    assert fewer == (REPLICAS, 150, 150)
    during = [start("r2", 100), start("r3", 160), start("r4", 170)]
    more = change(BEFORE, during, sent(r0=110, r1=170, r2=900, r3=900, r4=900))
    assert more == (REPLICAS, 170, 170)


def test_a_removed_replica_is_found_in_the_store(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")

    def samples(replica: str, process: int, until_s: int) -> list[EngineSample]:
        return [
            EngineSample(
                replica=replica,
                engine=0,
                process=process,
                at_unix_ns=at_s * 10**9,
                started_unix_ns=10**9,
            )
            for at_s in range(10_000, until_s, 50)
        ]

    with Writer(engine) as writer:
        rows = [*samples("r0", 1, 12_000), *samples("r1", 1, 11_000), *samples("r2", 1, 10_100)]
        writer.submit([], rows, starts=[*BEFORE, start("r2", 1)]).result(10)
    found = server_change(engine, Window(10_200 * 10**9, 12_000 * 10**9))
    assert found is not None
    assert found.what == REPLICAS
    assert found.to_unix_ns == 10_950 * 10**9
    assert server_change(engine, Window(11_000 * 10**9, 12_000 * 10**9)) is None
    assert STALE_NS == 30 * 10**9
    engine.dispose()
