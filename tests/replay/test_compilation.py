import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from replay import compilation, loop


def test_loading_compiled_code_is_not_reported() -> None:
    loop.warm()
    begun: list[bool] = []
    assert not loop.warm(lambda: begun.append(True))
    assert not begun


def test_only_the_first_function_that_is_compiled_is_reported() -> None:
    begun: list[bool] = []
    listener = loop._Compilations(lambda: begun.append(True))
    for is_start in (True, True, False, True):
        listener.notify(SimpleNamespace(is_start=is_start))
    assert (listener.any, begun) == (True, [True])


def test_a_compilation_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(compilation, "warm", lambda: False)
    compilation.compile_in_background()
    assert not caplog.messages
    monkeypatch.setattr(compilation, "warm", lambda: True)
    compilation.compile_in_background()
    assert caplog.messages == ["The replay was compiled in 0 s."]


def test_without_a_folder_for_the_code_one_line_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compilation, "_code_folder", lambda: None)
    monkeypatch.setattr(compilation, "warm", lambda: pytest.fail("it would help no process"))
    compilation.compile_in_background()
    (line,) = caplog.messages
    assert "NUMBA_CACHE_DIR" in line


def test_a_failure_is_logged_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bool:
        raise OSError("the disk is full")

    monkeypatch.setattr(compilation, "warm", fail)
    compilation.compile_in_background()
    (line,) = caplog.messages
    assert "OSError: the disk is full" in line


def test_the_process_has_the_lowest_priority_and_ends_with_its_parent() -> None:
    code = (
        "import os, sys, time\n"
        "from replay import compilation\n"
        "def work(): print(os.nice(0), flush=True); time.sleep(600)\n"
        "compilation.compile_in_background = work\n"
        "compilation.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert int(child.stdout.readline()) == compilation.NICE
        child.stdin.close()
        assert child.wait(20) == 1
