from dataclasses import replace
from pathlib import Path

import pytest

from analysis.compare.server_changes import STALE_NS, change_of, server_change
from store.database import open_database
from store.queries import Window
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.starts import EngineStart


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


def test_a_rolling_deployment_is_one_change() -> None:
    found = change_of(BEFORE, [start("r0", 100, "b"), start("r1", 160, "b")])
    assert found is not None
    assert found.what == "The configuration"
    assert (found.from_unix_ns, found.to_unix_ns) == (100 * 10**9, 160 * 10**9)


def test_an_upgrade_and_a_new_replica_are_changes() -> None:
    upgraded = change_of(BEFORE, [start("r0", 100, version="0.33.0")])
    assert upgraded is not None
    assert upgraded.what == "The version of vLLM"
    added = change_of(BEFORE, [start("r2", 100)])
    assert added is not None
    assert added.what == "The number of replicas"


def test_a_restart_and_a_first_start_are_no_change() -> None:
    assert change_of(BEFORE, [start("r0", 100)]) is None
    assert change_of([], [start("r0", 100), start("r1", 101)]) is None
    assert change_of(BEFORE, []) is None


def test_two_deployments_far_apart_are_two_changes() -> None:
    """The latest deployment counts."""
    found = change_of(BEFORE, [start("r0", 100, "b"), start("r1", 160, "b"), start("r0", 800, "c")])
    assert found is not None
    assert (found.from_unix_ns, found.to_unix_ns) == (800 * 10**9, 800 * 10**9)


def test_a_change_begins_when_its_first_engine_begins_to_load() -> None:
    found = change_of(BEFORE, [replace(start("r0", 100, "b"), loading_s=40.0)])
    assert found is not None
    assert (found.from_unix_ns, found.to_unix_ns) == (60 * 10**9, 100 * 10**9)


def test_the_first_starts_of_a_range_are_the_state_before_the_others() -> None:
    """Two replicas that stop and three that start are a deploy."""
    first = [start("r0", 100), start("r1", 101)]
    again = [start("r0", 300), start("r1", 300), start("r2", 300)]
    found = change_of([], [*first, *again])
    assert found is not None
    assert found.what == "The number of replicas"
    assert (found.from_unix_ns, found.to_unix_ns) == (300 * 10**9, 300 * 10**9)
    assert change_of([], [*first, *again[:2]]) is None
    assert change_of([], [*first, start("r2", 701)]) is None
    late = change_of([], [*first, start("r2", 702)])
    assert late is not None
    assert late.what == "The number of replicas"


def sent(**last_s: int) -> dict[str, int]:
    return {name: at_s * 10**9 for name, at_s in last_s.items()}


def test_fewer_replicas_are_a_change() -> None:
    found = change_of(BEFORE, [], sent(r0=2_000, r1=1_300))
    assert found is not None
    assert found.what == "The number of replicas"
    assert (found.from_unix_ns, found.to_unix_ns) == (1_300 * 10**9, 1_300 * 10**9)


@pytest.mark.parametrize(
    "last",
    [
        sent(r0=2_000, r1=1_500),  # it may be restarting
        sent(r0=2_000),  # it ended before the range
        sent(r0=1_300, r1=1_300),  # the collector was away
        {},
    ],
)
def test_a_replica_that_may_return_or_ended_before_is_no_change(last: dict[str, int]) -> None:
    assert change_of(BEFORE, [], last) is None


def test_the_end_of_a_replica_before_the_range_is_no_change() -> None:
    last = sent(r0=2_000, r1=900)
    assert change_of(BEFORE, [], last, from_unix_ns=1_000 * 10**9) is None
    assert change_of(BEFORE, [], last, from_unix_ns=800 * 10**9) is not None


@pytest.mark.parametrize(
    ("config", "version", "what"),
    [
        ("b", "0.32.0", "The configuration"),
        ("a", "0.33.0", "The version of vLLM"),
        ("a", "0.32.0", None),
    ],
)
def test_new_names_in_the_place_of_old_ones_are_compared_with_them(
    config: str, version: str, what: str | None
) -> None:
    """A Kubernetes Deployment gives each pod a new name at each rollout."""
    during = [start("r2", 100, config, version), start("r3", 160, config, version)]
    found = change_of(BEFORE, during, sent(r0=110, r1=170, r2=900, r3=900))
    assert (None if found is None else found.what) == what


def test_one_new_name_for_two_old_ones_is_a_smaller_fleet() -> None:
    found = change_of(BEFORE, [start("r2", 100)], sent(r0=100, r1=150, r2=900))
    assert found is not None
    assert found.what == "The number of replicas"
    assert found.to_unix_ns == 150 * 10**9


def test_more_replicas_are_a_change_beside_a_rollout() -> None:
    during = [start("r2", 100), start("r3", 160), start("r4", 170)]
    found = change_of(BEFORE, during, sent(r0=110, r1=170, r2=900, r3=900, r4=900))
    assert found is not None
    assert found.what == "The number of replicas"


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
    assert found.what == "The number of replicas"
    assert found.to_unix_ns == 10_950 * 10**9
    assert server_change(engine, Window(11_000 * 10**9, 12_000 * 10**9)) is None
    assert STALE_NS == 30 * 10**9
    engine.dispose()
