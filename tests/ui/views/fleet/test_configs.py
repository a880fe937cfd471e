from dataclasses import replace
from typing import Any

from telemetry.starts import EngineStart, written
from tests.ui.conftest import make_start
from ui.views.fleet import words
from ui.views.fleet.configs import APART_NS, differing_arguments, groups, restarts

S = 1_000_000_000


def start(replica: str, config: str, **about: Any) -> EngineStart:
    """Return an engine's start whose only argument has the configuration's name as its value."""
    about = {"model": "m", "arguments": written({"scheduler.max_num_seqs": config}), **about}
    return make_start(replica, 0, config=config, **about)


def test_replicas_of_one_model_are_compared_with_the_majority() -> None:
    found = groups(
        [
            *(start(name, "64") for name in ("a", "b", "gone")),
            start("c", "8"),
            start("x", "1", model="other"),
        ],
        ["a", "b", "c", "x"],
    )
    assert [(each.model, each.config, list(each.replicas)) for each in found] == [
        ("m", "64", ["a", "b"]),
        ("m", "8", ["c"]),
        ("other", "1", ["x"]),
    ]
    assert differing_arguments(found) == {"c": ["scheduler.max_num_seqs 8, not 64"]}
    table = words.configurations(found)
    assert "scheduler.max_num_seqs: <b>8</b>, most have 64" in table
    assert "No engine reported" in words.configurations([])


def test_replicas_with_the_same_arguments_are_listed_by_version() -> None:
    """During an upgrade, a part of the replicas has the new version."""
    found = groups(
        [
            *(start(name, "64", version="0.32.0") for name in ("a", "b")),
            start("c", "64", version="0.33.0"),
        ],
        ["a", "b", "c"],
    )
    assert [(each.version, list(each.replicas)) for each in found] == [
        ("0.32.0", ["a", "b"]),
        ("0.33.0", ["c"]),
    ]
    assert differing_arguments(found) == {}
    assert "vLLM 0.33.0" in words.configurations(found)


def test_an_engine_that_a_replica_no_longer_has_is_no_configuration() -> None:
    """The replica had two engines, and was started again with one."""
    before = replace(start("a", "2 engines"), engine=1)
    now = replace(start("a", "1 engine"), at_unix_ns=APART_NS + 1)
    found = groups([now, before, start("b", "1 engine")], ["a", "b"])
    assert [(each.config, list(each.replicas)) for each in found] == [("1 engine", ["a", "b"])]
    both = groups([replace(now, at_unix_ns=APART_NS), before], ["a"])
    assert len(both) == 2


def test_a_new_start_of_a_known_engine_is_a_restart() -> None:
    began = {
        "old": [5 * S, 1_000 * S, 1_000 * S + APART_NS // 2],
        "known": [1_000 * S],
        "new": [1_000 * S],
        "twice": [1_000 * S, 2_000 * S],
    }
    assert restarts(began, ["known"], 900 * S) == {
        "old": [1_000 * S],
        "known": [1_000 * S],
        "twice": [2_000 * S],
    }
