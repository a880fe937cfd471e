import time
from pathlib import Path
from typing import Any

import pytest
from tailspan_vllm.engine_state.hardware import MAX_LOADING_S
from tailspan_vllm.start_up import process
from tailspan_vllm.start_up.process import START_VARIABLE, first_process, note_first_process


def environ(**given: str) -> Any:
    return dict(given)


def test_the_start_of_this_process_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = environ()
    monkeypatch.setattr(process, "own_age_s", lambda: 40.0)
    note_first_process(given)
    found = first_process(given)
    assert found is not None
    assert found.plugin - found.began == pytest.approx(40.0)
    assert abs(time.time() - 40.0 - found.began_unix_ns / 1e9) < 5
    monkeypatch.setattr(process, "own_age_s", lambda: 1.0)
    note_first_process(given)  # a child process inherits the environment
    assert first_process(given) == found


@pytest.mark.parametrize("age_s", [None, MAX_LOADING_S + 1])
def test_an_unknown_or_implausible_age_is_not_noted(
    age_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environ()
    monkeypatch.setattr(process, "own_age_s", lambda: age_s)
    note_first_process(given)
    assert given == {}


@pytest.mark.parametrize("text", ["", "1.0 2.0", "a b c", "nan 2.0 3", "1.0 inf 3", "1 2 3 4"])
def test_a_malformed_variable_is_unknown(text: str) -> None:
    assert first_process(environ(**{START_VARIABLE: text})) is None


def _stat(proc: Path, process: str, number: int, parent: int) -> None:
    (proc / process).mkdir()
    (proc / process / "stat").write_text(f"{number} (a) b) (c) S {parent} 1 1 0")


def test_a_process_of_the_container_descends_from_process_1(tmp_path: Path) -> None:
    _stat(tmp_path, "self", 40, 12)
    _stat(tmp_path, "12", 12, 1)
    assert not process.descends_from_process_1(tmp_path)
    _stat(tmp_path, "1", 1, 0)
    assert process.descends_from_process_1(tmp_path)


def test_a_process_that_was_started_from_outside_does_not_descend_from_process_1(
    tmp_path: Path,
) -> None:
    _stat(tmp_path, "self", 40, 12)
    _stat(tmp_path, "12", 12, 0)
    assert not process.descends_from_process_1(tmp_path)


def test_a_circle_of_processes_ends(tmp_path: Path) -> None:
    _stat(tmp_path, "self", 40, 12)
    _stat(tmp_path, "12", 12, 12)
    assert not process.descends_from_process_1(tmp_path)


def test_the_age_of_this_process_is_read() -> None:
    began = process.this_process_began()
    assert began is not None
    assert began < time.monotonic()
