from dataclasses import replace

from analysis.compare.server_changes import change_of
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
    """The latest one counts."""
    found = change_of(BEFORE, [start("r0", 100, "b"), start("r1", 160, "b"), start("r0", 800, "c")])
    assert found is not None
    assert (found.from_unix_ns, found.to_unix_ns) == (800 * 10**9, 800 * 10**9)


def test_a_change_begins_when_its_first_engine_begins_to_load() -> None:
    found = change_of(BEFORE, [replace(start("r0", 100, "b"), loading_s=40.0)])
    assert found is not None
    assert (found.from_unix_ns, found.to_unix_ns) == (60 * 10**9, 100 * 10**9)


def test_the_first_starts_of_a_range_are_the_state_before_the_others() -> None:
    """A fleet of two that is stopped, and started again with three, is a deploy."""
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
