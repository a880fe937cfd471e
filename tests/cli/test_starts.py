import json
from collections.abc import Callable

import pytest
from click.testing import Result
from sqlalchemy import Engine

from store.writer import Writer
from tests.cold_starts import PARTS_S, cold_start

Run = Callable[..., Result]


@pytest.fixture
def stored(engine: Engine) -> None:
    with Writer(engine) as writer:
        starts = [cold_start(0), cold_start(100, {"unsplit": 30.0, "imports": 5.0}, replica="b")]
        writer.submit([], [], cold_starts=starts).result(10)


def test_the_parts_of_each_start_are_printed_with_their_sum(run: Run, stored: None) -> None:
    lines = run("starts").output.splitlines()
    (first,) = (line for line in lines if line.startswith("a "))
    (second,) = (line for line in lines if line.startswith("b "))
    assert first.split()[-2:] == ["56.0", "s"] or first.endswith("56.0 s")
    assert "–" in second or "-" in second
    assert any(
        line.startswith("Longest start (a, engine 0): the weights took longest (20 s). Try:")
        for line in lines
    )


def test_the_json_has_the_parts_and_the_advice(run: Run, stored: None) -> None:
    found = json.loads(run("starts", "--format", "json").output)
    assert found["number"] == 2
    first, second = found["starts"]
    assert first["parts_s"] == PARTS_S
    assert sum(first["parts_s"].values()) == first["seconds"] == 56.0
    assert first["ready"] - first["began"] == 56.0
    assert second["parts_s"] == {"imports": 5.0, "unsplit": 30.0}
    assert first["slow_first_requests"] == []


def test_starts_are_selected_by_label(run: Run, stored: None) -> None:
    found = json.loads(run("starts", "--where", "replica=b", "--format", "json").output)
    assert [each["replica"] for each in found["starts"]] == ["b"]
    wrong = run("starts", "--where", "tenant=acme")
    assert wrong.exit_code == 2
    assert "replica" in wrong.output


def test_without_starts_the_command_explains_what_reports_them(run: Run, engine: Engine) -> None:
    result = run("starts")
    assert result.exit_code == 0
    assert "No engine reported the parts of a start" in result.output


@pytest.fixture
def crash_loop(engine: Engine) -> None:
    parts = {"imports": 6.0, "config": 2.0, "weights": 12.0}
    with Writer(engine) as writer:
        starts = [
            cold_start(0, parts, reached="weights", failure="OutOfMemoryError", model=None),
            cold_start(60, parts, reached="weights", failure="exit", model=None),
        ]
        writer.submit([], [], cold_starts=starts).result(10)


def test_failed_starts_have_the_part_and_the_reason(run: Run, crash_loop: None) -> None:
    """No start is complete, so there is no advice."""
    shown = run("starts").output
    assert (
        "\na, engine 0, begun 2025-11-20 10:20:00: failed after 20 s, in the weights, 12" in shown
    )
    assert "in the weights, 12 s into it: OutOfMemoryError.\n" in shown
    assert "in the weights, 12 s into it: the server ended.\n" in shown
    assert "ended (UTC)" in shown
    assert "Longest start" not in shown
    first, second = json.loads(run("starts", "--format", "json").output)["starts"]
    assert first["ready"] is None
    assert first["failed"] == {
        "at": first["began"] + 20.0,
        "part": "weights",
        "reason": "OutOfMemoryError",
    }
    assert first["advice"] is None
    assert sum(first["parts_s"].values()) == first["seconds"]
    assert second["failed"]["reason"] == "exit"


def test_a_hostile_reason_is_printed_without_control_characters(run: Run, engine: Engine) -> None:
    start = cold_start(0, reached="\x1b[31mpart", failure="\x1b]0;x\x07" + "w" * 900)
    with Writer(engine) as writer:
        writer.submit([], [], cold_starts=[start]).result(10)
    shown = run("starts").output
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 400
