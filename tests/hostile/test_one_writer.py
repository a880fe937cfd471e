import os
import stat
from pathlib import Path
from signal import SIGKILL

import pytest
from click.testing import CliRunner

from cli.main import tailspan
from rig.program import PATIENCE_S
from tests.hostile.conftest import collecting


def test_two_collectors_on_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        with collecting(tmp_path, "sqlite:///data/t.db") as first:
            assert first.address("metrics")
            (tmp_path / "other").symlink_to("data")
            with collecting(tmp_path, f"sqlite:///{tmp_path}/other/t.db") as second:
                assert second.process.wait(PATIENCE_S) == 2
                assert f"process {first.process.pid}, command" in second.printed
                assert "Traceback" not in second.printed
            read = ["requests", "--database", "sqlite:///data/t.db"]
            listed = CliRunner().invoke(tailspan, read, catch_exceptions=False)
            assert listed.exit_code == 0, listed.stderr
            modes = {
                path.name: stat.S_IMODE(path.stat().st_mode)
                for path in (tmp_path / "data").iterdir()
            }
            assert set(modes.values()) == {0o600}, modes
            assert set(modes) == {"t.db", "t.db-shm", "t.db-wal", "t.db.lock"}
            first.ends(SIGKILL)
        with collecting(tmp_path, "sqlite:///data/t.db") as third:
            assert third.address("metrics")
    finally:
        os.umask(before)
