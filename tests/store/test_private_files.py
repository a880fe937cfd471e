import os
from collections.abc import Callable
from pathlib import Path

from store.database import open_database
from store.private_files import create, restrict_modes
from store.writer import Writer
from telemetry.requests import RequestTimeline


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_files_are_private(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> None:
    before = os.umask(0)
    try:
        engine = open_database(f"sqlite:///{tmp_path}/var/tailspan.db")
        with Writer(engine) as writer:
            writer.submit([request_row()], []).result(10)
            beside = sorted(each.name for each in (tmp_path / "var").iterdir())
            assert beside == ["tailspan.db", "tailspan.db-shm", "tailspan.db-wal"]
            assert {mode(each) for each in (tmp_path / "var").iterdir()} == {0o600}
        assert mode(tmp_path / "var") == 0o700
        engine.dispose()
    finally:
        os.umask(before)


def test_an_existing_file_is_not_emptied(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("kept")
    path.chmod(0o644)
    create(path)
    assert path.read_text() == "kept"
    assert mode(path) == 0o644


def test_a_file_that_others_can_read_is_made_private_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("kept")
    path.chmod(0o664)
    messages: list[str] = []
    for _ in range(2):
        restrict_modes([path, tmp_path / "missing"], messages.append)
    assert mode(path) == 0o600
    assert messages == [f"{path} was open to other users (mode 664); it is private now."]
