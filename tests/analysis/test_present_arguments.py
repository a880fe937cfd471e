import pytest

from analysis.present_arguments import latest_change
from telemetry.starts import Argument, EngineStart, written

S = 10**9
NOW = 1_790_000_000 * S
ENGINE = ("a", 0)


def start(
    ago_s: int, replica: str = "a", version: str = "0.32.0", **arguments: Argument
) -> EngineStart:
    """Return a start with the arguments of the scheduler."""
    reported = {f"scheduler.{name}": value for name, value in arguments.items()}
    return EngineStart(
        replica=replica,
        engine=0,
        process=ago_s,
        at_unix_ns=NOW - ago_s * S,
        config=written(reported),
        arguments=written(reported),
        version=version,
    )


def test_the_latest_change_of_an_argument_is_named() -> None:
    starts = [
        start(900, max_num_seqs=64),
        start(600, max_num_seqs=128),
        start(300, max_num_seqs=256, policy="priority"),
    ]
    found = latest_change(starts, {ENGINE: NOW})
    assert found is not None
    assert found.at_unix_ns == NOW - 300 * S
    assert found.what == (
        "replica a restarted with other arguments at 2026-09-21 14:08:20 UTC"
        " (scheduler.max_num_seqs: 128 to 256, scheduler.policy: unset to priority)"
    )


def test_a_restart_with_the_same_arguments_is_no_change() -> None:
    """A later restart does not hide an earlier change either."""
    same = [start(600, max_num_seqs=64), start(300, max_num_seqs=64)]
    assert latest_change(same, {ENGINE: NOW}) is None
    found = latest_change([start(900, max_num_seqs=8), *same], {ENGINE: NOW})
    assert found is not None
    assert found.at_unix_ns == NOW - 600 * S


def test_another_version_is_a_change() -> None:
    starts = [start(600, max_num_seqs=64), start(300, version="0.33.0", max_num_seqs=64)]
    found = latest_change(starts, {ENGINE: NOW})
    assert found is not None
    assert found.what.endswith("(version: 0.32.0 to 0.33.0)")


@pytest.mark.parametrize(("seats", "changed"), [(64, False), (128, True)])
def test_after_a_rollout_with_new_names_the_last_old_server_ends_the_change(
    seats: int, changed: bool
) -> None:
    starts = [start(9_000, max_num_seqs=seats), start(400, replica="b", max_num_seqs=64)]
    found = latest_change(starts, {ENGINE: NOW - 300 * S, ("b", 0): NOW})
    assert (found is not None) == changed
    if found is not None:
        assert found.at_unix_ns == NOW - 300 * S
        assert "replica a with other arguments ended at" in found.what


def test_servers_without_samples_are_ignored() -> None:
    starts = [start(600, max_num_seqs=64), start(300, max_num_seqs=128)]
    assert latest_change(starts, {}) is None
    assert latest_change(starts, {("b", 0): NOW}) is None
