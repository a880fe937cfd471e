import os
from pathlib import Path

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from alerts.openslo.reader import OBJECTIVES
from ui.frame.objectives import read_objectives, short
from ui.views.overview.words import EXAMPLE


def test_without_an_option_the_shipped_objectives_are_read() -> None:
    found = read_objectives({})
    assert [each.name for each in found.parsed] == ["chat"]
    assert not found.errors
    assert short(next(iter(found.texts))) == "alerts/objectives/chat.yaml"


def test_several_files_and_folders_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "a.yaml").write_text(EXAMPLE)
    (tmp_path / "b.yaml").write_text(EXAMPLE.replace("{name: chat}", "{name: b, extra: 1}"))
    found = read_objectives(
        {OBJECTIVES_KEY: f"{tmp_path / 'all'}{os.pathsep}{tmp_path / 'b.yaml'}"}
    )
    assert [each.name for each in found.parsed] == ["chat"]
    assert len(found.errors) == 1
    assert "no such key" in str(found.errors[0])
    assert list(found.texts) == [str(tmp_path / "all" / "a.yaml"), str(tmp_path / "b.yaml")]


def test_files_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\xff")
    for given in (tmp_path / "none.yaml", tmp_path / "a.yaml"):
        problem = read_objectives({OBJECTIVES_KEY: str(given)}).problem
        assert problem is not None
        assert "cannot be read" in problem
    assert OBJECTIVES.is_dir()
