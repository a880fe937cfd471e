import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from collector.gpus.nvml import NvmlReader
from collector.gpus.processes import HostProcesses
from tests.collector.gpus.driver import Card, Driver
from tests.collector.scrape import conftest as scraping

stranger = scraping.stranger
NOW_UNIX_NS = 1_796_000_000 * 10**9


class Clock:
    """A monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driver]]:
    """Return a function that installs a driver with these GPUs.

    The function first waits for the threads of earlier readers. If they ended later, they would
    close the new driver's library.
    """

    def given_back() -> None:
        for thread in threading.enumerate():
            if thread.name == "gpu-library":
                thread.join(5)

    def put(*cards: Card) -> Driver:
        given_back()
        driver = Driver(*cards)
        monkeypatch.setattr(pynvml, "nvmlLib", driver)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return driver

    yield put
    given_back()


@pytest.fixture
def reader(clock: Clock) -> Any:
    made = NvmlReader(clock_unix_ns=lambda: NOW_UNIX_NS, clock=clock)
    yield made
    made.close()


BOOTED_S = 1_795_000_000
TICKS_PER_S = 100


class FakeProc:
    """A fake /proc.

    The environment of every process contains secrets, which must not be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "stat").write_text(f"cpu 1 2 3\nintr 5\nbtime {BOOTED_S}\nprocesses 9\n")

    def add(
        self,
        pid: int,
        parent: int,
        *,
        own_pid: int | None = None,
        started_s: float = BOOTED_S + 100.0,
        name: str = "python3",
        hostname: str | None = None,
        visible: str | None = None,
        program: str = "/usr/bin/python3.12",
    ) -> None:
        """Add a process; `own_pid` is its id within its container."""
        folder = self.root / str(pid)
        folder.mkdir()
        numbers = str(pid) if own_pid is None else f"{pid}\t{own_pid}"
        (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nNSpid:\t{numbers}\n")
        ticks = round((started_s - BOOTED_S) * TICKS_PER_S)
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {'0 ' * 17}{ticks} 7 8\n")
        variables = ["HF_TOKEN=hf_secret", "X_CUDA_VISIBLE_DEVICES=9"]
        if visible is not None:
            variables.append(f"CUDA_VISIBLE_DEVICES={visible}")
        (folder / "environ").write_text("\0".join(variables) + "\0")
        (folder / "exe").symlink_to(program)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "task" / str(pid) / "children").touch()
        of_parent = self.root / str(parent) / "task" / str(parent) / "children"
        if of_parent.exists():
            of_parent.write_text(f"{of_parent.read_text()}{pid} ")
        if hostname is not None:
            (folder / "root" / "etc").mkdir(parents=True)
            (folder / "root" / "etc" / "hostname").write_text(f"{hostname}\n")

    def listens(self, pid: int, *ports: int, others: int = 9_999) -> None:
        """Add listening sockets of the process, another process' socket, and an open connection."""
        folder = self.root / str(pid)
        (folder / "net").mkdir()
        (folder / "fd").mkdir()
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        row = "   0: 00000000:{port:04X} 00000000:0000 {state} 0:0 00:0 0 1000 0 {inode} 1 0\n"
        rows = [row.format(port=others, state="0A", inode=7)]
        for inode, port in enumerate(ports, 4_000):
            rows.append(row.format(port=port, state="0A", inode=inode))
            (folder / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
        rows.append(row.format(port=50_000, state="01", inode=5_000))
        (folder / "fd" / "3").symlink_to("socket:[5000]")
        (folder / "fd" / "4").symlink_to("/dev/null")
        (folder / "net" / "tcp").write_text(head + "".join(rows))

    def processes(self) -> HostProcesses:
        return HostProcesses(self.root, TICKS_PER_S)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Return a machine's processes: init, a kernel thread, and a shell."""
    made = FakeProc(tmp_path)
    made.add(1, 0, name="systemd")
    made.add(2, 0, name="kthreadd")
    made.add(50, 1, name="bash)(", program="/bin/bash")
    return made
