"""The objectives in force, as their files say."""

import os
from pathlib import Path

from alerts.openslo.reader import OBJECTIVES
from ui.frame.objectives import in_force, short
from ui.serving.launch import OBJECTIVES_KEY
from ui.views.overview.words import EXAMPLE


def test_without_a_word_those_that_come_along_are_in_force() -> None:
    """As for `tailspan up`."""
    found = in_force({})
    assert [each.name for each in found.objectives] == ["chat"]
    assert not found.wrong
    assert short(next(iter(found.texts))) == "alerts/objectives/chat.yaml"


def test_several_files_and_folders_are_read_together(tmp_path: Path) -> None:
    """What is wrong with one leaves the others in force, and is told."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "a.yaml").write_text(EXAMPLE)
    (tmp_path / "b.yaml").write_text(EXAMPLE.replace("{name: chat}", "{name: b, extra: 1}"))
    found = in_force({OBJECTIVES_KEY: f"{tmp_path / 'all'}{os.pathsep}{tmp_path / 'b.yaml'}"})
    assert [each.name for each in found.objectives] == ["chat"]
    assert len(found.wrong) == 1
    assert "no such key" in str(found.wrong[0])
    assert list(found.texts) == [str(tmp_path / "all" / "a.yaml"), str(tmp_path / "b.yaml")]


def test_files_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    """Not there, or no text."""
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\xff")
    for given in (tmp_path / "none.yaml", tmp_path / "a.yaml"):
        problem = in_force({OBJECTIVES_KEY: str(given)}).problem
        assert problem is not None
        assert "cannot be read" in problem
    assert OBJECTIVES.is_dir()
