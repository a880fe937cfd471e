import subprocess
import sys
from typing import Any

import pytest

from telemetry import child_process
from ui.serving.compiling import compile_later


def _run(monkeypatch: pytest.MonkeyPatch, code: str) -> list[subprocess.Popen[bytes]]:
    begun: list[subprocess.Popen[bytes]] = []

    def start(module: str) -> subprocess.Popen[bytes]:
        assert module == "replay.compilation"
        begun.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        return begun[-1]

    monkeypatch.setattr(child_process, "start", start)
    compile_later(0, 0.5 if "sleep" in code else 20)
    return begun


def test_the_compiler_runs_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    (child,) = _run(monkeypatch, "")
    assert child.returncode == 0


def test_a_compiler_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (child,) = _run(monkeypatch, "import time; time.sleep(600)")
    assert child.returncode != 0
    assert "the limit of" in caplog.messages[0]


def test_a_child_that_cannot_start_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(child_process, "start", refuse)
    compile_later(0)
    assert "no more processes" in caplog.messages[0]
