import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from server import children
from server.children import Child, ChildError

PATIENCE_S = 30.0
ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends a child with its parent"
)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.fixture
def with_child(tmp_path: Path) -> Callable[..., None]:
    def play(code: str, play: Callable[[Child], Awaitable[None]]) -> None:
        async def run() -> None:
            child = await children.start("child", python(code), {}, tmp_path / "new" / "child.log")
            try:
                await play(child)
            finally:
                child.kill()
                await child.wait()

        asyncio.run(run())

    return play


async def wait_for_words(child: Child, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while words not in child.last_words():
        assert time.monotonic() < deadline, child.last_words()
        await asyncio.sleep(0.02)


def test_a_child_is_asked_to_end(with_child: Callable[..., None]) -> None:
    """Its own session gets no signals of the terminal, so Ctrl-C reaches it through its parent."""

    async def play(child: Child) -> None:
        await wait_for_words(child, "begun")
        await child.stop()
        assert await child.wait() == 7
        assert child.last_words() == "begun True\nended"
        await child.stop()  # a second stop has no effect
        assert not child.running

    code = (
        "import os, signal, sys\n"
        "def end(*_): print('ended', file=sys.stderr); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('begun', os.getsid(0) == os.getpid(), flush=True); signal.pause()"
    )
    with_child(code, play)


def test_a_child_that_ignores_sigterm_is_killed(with_child: Callable[..., None]) -> None:
    async def play(child: Child) -> None:
        await wait_for_words(child, "begun")
        await child.stop(within_s=0.1)
        assert await child.wait() == -signal.SIGKILL

    code = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('begun', flush=True)\nwhile True: signal.pause()"
    )
    with_child(code, play)


def test_the_last_lines_are_fit_for_a_terminal(with_child: Callable[..., None]) -> None:
    async def play(child: Child) -> None:
        assert await child.wait() == 0
        *lines, last = child.last_words(3).splitlines()
        assert lines == ["98", "99"]
        assert last.startswith("\\x1b[31m\ufffdxxx")
        assert len(last) < 300

    code = (
        "import sys\nfor n in range(100): print(n)\nsys.stdout.flush()\n"
        "sys.stdout.buffer.write(b'\\x1b[31m\\xff' + b'x' * 5000)"
    )
    with_child(code, play)


def test_a_log_is_truncated_at_the_start_and_may_be_missing(
    with_child: Callable[..., None],
) -> None:
    for number in (1, 2):

        async def play(child: Child, number: int = number) -> None:
            await child.wait()
            assert child.last_words() == f"start {number}"
            if number == 2:
                child.log.unlink()
                assert child.last_words() == ""

        with_child(f"print('start {number}')", play)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def run() -> None:
        with pytest.raises(ChildError, match=r"cannot start the child with its log in .*file/"):
            await children.start("child", python(""), {}, tmp_path / "file" / "child.log")

    asyncio.run(run())


def test_no_local_program_of_that_name_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory may contain another `cli`."""
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "main.py").write_text("def main(): print('another program')")
    (tmp_path / "cli" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        command = children.own_command("simulate", "--help")
        child = await children.start("simulator", command, {}, tmp_path / "child.log")
        assert await child.wait() == 0
        assert "tailspan simulate" in child.log.read_text()

    asyncio.run(run())


@ON_LINUX
def test_a_child_ends_with_a_killed_parent(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    child = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    code = f"""
import asyncio, sys
from pathlib import Path
from server import children
async def main():
    child = await children.start("c", (sys.executable, "-c", {child!r}), {{}}, Path({str(log)!r}))
    await child.wait()
asyncio.run(main())
"""
    parent = subprocess.Popen(python(code))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (log.is_file() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        parent.kill()
        parent.wait()
    status = Path("/proc", log.read_text().strip(), "stat")
    while status.exists() and ") Z " not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@ON_LINUX
def test_a_child_of_an_ended_parent_does_not_start() -> None:
    """The kernel sends no signal if the parent ended before the child asked for a signal."""
    script = Path(children.__file__).with_name("end_with_parent.py")
    asked = [sys.executable, str(script), str(os.getpid() + 1), *python("print('began')")]
    done = subprocess.run(asked, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
