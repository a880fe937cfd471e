import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.gpus.processes import HostProcess, HostProcesses
from tests.collector.gpus.conftest import BOOTED_S, FakeProc

PYTHON = "/usr/bin/python3.12"


def test_ancestors_are_listed_up_to_the_first(proc: FakeProc) -> None:
    proc.add(60, 50, started_s=BOOTED_S + 7.25)
    proc.add(70, 60, own_pid=1)
    assert list(proc.processes().ancestry(70)) == [
        HostProcess(70, 1, True, BOOTED_S + 100.0, PYTHON),
        HostProcess(60, 60, False, BOOTED_S + 7.25, PYTHON),
        HostProcess(50, 50, False, BOOTED_S + 100.0, "/bin/bash"),
    ]


def test_the_first_of_a_machine_is_no_ancestor_and_that_of_a_container_is(proc: FakeProc) -> None:
    """In a container, process 1 may be the server."""
    assert [each.pid for each in proc.processes().ancestry(50)] == [50]
    (proc.root / "2" / "status").unlink()
    assert [each.pid for each in proc.processes().ancestry(50)] == [50, 1]


def test_a_process_that_is_gone_has_no_ancestors(proc: FakeProc) -> None:
    proc.add(60, 59)
    assert [each.pid for each in proc.processes().ancestry(60)] == [60]
    assert list(proc.processes().ancestry(61)) == []


def test_a_chain_without_end_ends(proc: FakeProc) -> None:
    """Processes change while they are read, so a chain of parents may contain a cycle."""
    proc.add(60, 61)
    proc.add(61, 60)
    assert len(list(proc.processes().ancestry(60))) == 64


def test_only_running_children_are_listed(proc: FakeProc) -> None:
    proc.add(60, 50)
    proc.add(61, 50)
    assert [each.pid for each in proc.processes().children(50)] == [60, 61]
    (proc.root / "60" / "status").unlink()
    assert [each.pid for each in proc.processes().children(50)] == [61]
    assert proc.processes().children(99) == []


def test_only_one_environment_variable_is_read(proc: FakeProc) -> None:
    """Other variables may contain secrets."""
    proc.add(60, 50, visible="0,1")
    proc.add(61, 50)
    processes = proc.processes()
    assert processes.visible_devices(60) == "0,1"
    assert processes.visible_devices(61) is None
    assert processes.visible_devices(62) is None


def test_values_of_an_unreadable_process_are_unknown(proc: FakeProc) -> None:
    proc.add(60, 50, hostname="chat-0")
    assert proc.processes().hostname(60) == "chat-0"
    assert proc.processes().hostname(50) is None
    (proc.root / "60" / "stat").write_text("60 (x")
    (proc.root / "60" / "exe").unlink()
    (proc.root / "stat").unlink()
    [first, *_] = HostProcesses(proc.root).ancestry(60)
    assert (first.started_unix_s, first.program) == (None, None)


def test_this_process_is_found_in_the_real_proc() -> None:
    if not Path("/proc/self/status").exists():
        return
    first, *others = HostProcesses().ancestry(os.getpid())
    assert first.pid == os.getpid()
    assert first.started_unix_s is not None
    assert all(each.pid != first.pid for each in others)


LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="there is no /proc")
def test_the_port_that_a_process_listens_on_is_found_in_the_real_proc() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        listens_on = int(server.stdout.readline())
        assert HostProcesses().port(server.pid) == listens_on
        server.communicate("")
    assert HostProcesses().port(server.pid) is None
