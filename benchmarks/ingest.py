"""Measure how many request spans per second are committed end to end, and the memory used.

    python benchmarks/ingest.py [--seconds 120] [--transport grpc|http] [--phoenix]

`tailspan up` runs without the explorer on an empty SQLite database. One sender in a separate
process waits for the acknowledgement of each batch of 512 spans. The rows in the database are
counted afterwards. With `--phoenix`, arize-phoenix in a separate environment receives the same
spans. Phoenix acknowledges a batch before it commits the rows.
"""

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from rig.ports import free_port  # noqa: E402  # found through sys.path
from rig.program import Program, Tailspan  # noqa: E402
from rig.prometheus_stack import answers, wait_for  # noqa: E402

SENDER = Path(__file__).with_name("_ingest_sender.py")
PHOENIX = "arize-phoenix"
DOES = {
    "collector.otlp.message_reader": "reads spans",
    "store.columns.adbc_process": "reads columns",
}
"""Maps a module to the role of the child process of `tailspan up` that runs it."""


class IngestResult(NamedTuple):
    """The result of one run."""

    what: str
    committed: int
    seconds: float
    cpu_s: dict[str, float]
    """CPU seconds of each role."""
    memory_mb: list[float]
    note: str = ""

    @property
    def rate(self) -> float:
        """Committed spans per second."""
        return self.committed / self.seconds

    def show(self) -> None:
        """Print one line with the result, and one line for each process."""
        early, late = self.memory_mb[len(self.memory_mb) // 4], self.memory_mb[-1]
        print(
            f"{self.what:<22} {self.rate:>8,.0f} spans/s  {self.committed:>10,} committed"
            f"  {self._each_us(sum(self.cpu_s.values())):>6.0f} µs CPU/span"
            f"  memory {self.memory_mb[0]:.0f} → {early:.0f} → {late:.0f} MB,"
            f" at most {max(self.memory_mb):.0f}  {self.note}",
            flush=True,
        )
        for process, used_s in self.cpu_s.items():
            busy = used_s / self.seconds
            print(
                f"  {process:<24} {self._each_us(used_s):>6.1f} µs CPU/span, {busy:.0%} of a core"
            )

    def _each_us(self, used_s: float) -> float:
        return used_s / self.committed * 1e6 if self.committed else 0.0


def family(pid: int) -> list[int]:
    """The ids of a process and its child processes."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [each for thread in threads for each in (thread / "children").read_text().split()]
    return [pid, *map(int, children)]


def cpu_s(pid: int) -> dict[str, float]:
    """The CPU time of a process and its child processes, for each role."""
    used = {
        "receives, commits": process_cpu_s(pid),
        "child processes that have ended": _cpu_s(pid, 13),
    }
    for child in family(pid)[1:]:
        what = DOES.get(_module(child), "other children")
        used[what] = used.get(what, 0.0) + process_cpu_s(child)
    return used


def spent_s(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The CPU time of each role between two readings, without idle roles."""
    spent = {what: used - before.get(what, 0.0) for what, used in after.items()}
    return {what: used for what, used in spent.items() if used > 0}


def memory_mb(pid: int) -> float:
    """The memory of a process and its children in MB; shared memory counts once."""
    return sum(map(_memory_mb, family(pid)))


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of one process."""
    return _cpu_s(pid, 11)


def _module(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("-m") + 1] if "-m" in words else ""


def _cpu_s(pid: int, first: int) -> float:
    """A user time plus the following system time in /proc/PID/stat, in seconds.

    The user time is in field `first`. The file has two such pairs: one for the process, and one for
    its child processes that have ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[first]) + int(fields[first + 1])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return int(found[1]) / 1024 if found else 0.0


def send(
    transport: str, port: int, seconds: float, pid: int
) -> tuple[dict[str, float], list[float]]:
    """Run the sender; return its report, and the receiver's memory in each second."""
    memory = [memory_mb(pid)]
    sender = subprocess.Popen(
        [sys.executable, str(SENDER), transport, str(port), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while sender.poll() is None:
        time.sleep(1)
        memory.append(memory_mb(pid))
    assert sender.stdout is not None
    printed = sender.stdout.read()
    if sender.returncode:
        raise SystemExit(f"the sender ended with status {sender.returncode}: {printed}")
    report: dict[str, float] = json.loads(printed)
    return report, memory


def rows(database: Path, table: str) -> int:
    """Return the number of rows of a table, or 0 if the table does not exist."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def tailspan(transport: str, seconds: float, folder: Path) -> IngestResult:
    """Measure `tailspan up` without the explorer."""
    database = folder / "tailspan.db"
    with Tailspan(folder, "up", "--no-explorer", f"--database=sqlite:///{database}") as up:
        pid = up.is_up().process.pid
        before = cpu_s(pid)
        report, memory = send(transport, up.port(transport), seconds, pid)
        used = spent_s(before, cpu_s(pid))
        committed = rows(database, "requests")
    note = f"sender {report['cpu_s'] / report['acknowledged'] * 1e6:.0f} µs CPU/span"
    if committed != report["acknowledged"]:
        note += f"; ACKNOWLEDGED {report['acknowledged']:,.0f}"
    note += f"; {report['refused']:.0f} batches sent again" if report["refused"] else ""
    return IngestResult(f"tailspan, {transport}", committed, report["seconds"], used, memory, note)


def phoenix(transport: str, seconds: float, folder: Path, venv: Path) -> IngestResult:
    """Measure Phoenix with the same spans."""
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", PHOENIX],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    home = folder / f"phoenix-{transport}"
    home.mkdir()
    ports = {name: free_port() for name in ("grpc", "http")}
    variables = {
        "PHOENIX_WORKING_DIR": str(home),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(ports["http"]),
        "PHOENIX_GRPC_PORT": str(ports["grpc"]),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    command = (str(python), "-m", "phoenix.server.main", "serve")
    with Program(home, *command, environ=variables) as program:
        pid = program.process.pid
        wait_for("Phoenix", lambda: answers(f"http://127.0.0.1:{ports['http']}/healthz"))
        before, database = cpu_s(pid), home / "phoenix.db"
        began = time.monotonic()
        report, memory = send(transport, ports[transport], seconds, pid)
        committed, took = rows(database, "spans"), time.monotonic() - began
        used = spent_s(before, cpu_s(pid))
    note = f"acknowledged {report['acknowledged']:,.0f}; {report['refused']:.0f} batches refused"
    return IngestResult(f"phoenix, {transport}", committed, took, used, memory, note)


def main() -> None:
    """Run the measurements and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--transport", choices=["grpc", "http"], action="append")
    parser.add_argument(
        "--phoenix", action="store_true", help="install and measure Phoenix as well"
    )
    parser.add_argument("--phoenix-seconds", type=float, default=20)
    parser.add_argument(
        "--phoenix-venv",
        type=Path,
        help="folder of Phoenix's virtual environment, which is created if necessary",
    )
    given = parser.parse_args()
    transports = given.transport or ["grpc", "http"]
    with tempfile.TemporaryDirectory(prefix="tailspan-ingest-") as name:
        folder = Path(name)
        ours = {}
        for transport in transports:
            (folder / transport).mkdir()
            ours[transport] = tailspan(transport, given.seconds, folder / transport)
            ours[transport].show()
        if not given.phoenix:
            return
        for transport in transports:
            try:
                theirs = phoenix(
                    transport, given.phoenix_seconds, folder, given.phoenix_venv or folder / "venv"
                )
            except subprocess.CalledProcessError as error:
                print(f"{PHOENIX} cannot be installed here: {error}")
                return
            theirs.show()
            if theirs.committed:
                print(f"  ratio, {transport}: {ours[transport].rate / theirs.rate:,.0f}")


if __name__ == "__main__":
    main()
