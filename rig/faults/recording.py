"""Record faults: a server runs under its usual load, and then under a fault.

Each fault gets its own database, with the ground truth beside it. Faults with the same server
arguments share a server. Faults with the same usual traffic share the recording of this traffic.
"""

import json
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

from rig import serve
from rig.faults.fault import ServerFault
from rig.faults.open_loop import send_on_time
from rig.faults.other_processes import Meter, wait_for_quiet
from rig.faults.traffic import PlannedTraffic
from rig.load import Call, mixed, send_all
from rig.ports import free_port
from rig.program import Tailspan

EXPORTED_S = 7.0
"""Seconds to wait until all data is in the database. Servers export every five seconds."""


class RecordingError(Exception):
    """A required program is not running."""


@dataclass(frozen=True, slots=True)
class RecordedInterval:
    """Start and end in Unix seconds, and the number of CPUs that other processes used."""

    begun_s: float
    ended_s: float
    others_cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """The injected fault, with its period."""

    cause: str
    metric: str
    baseline: RecordedInterval
    window: RecordedInterval
    arguments: tuple[str, ...]
    arguments_after: tuple[str, ...] | None
    replica: str
    seed: int
    severity: float
    answered: int
    failed: int
    cpus: int = field(default_factory=lambda: os.cpu_count() or 1)
    notes: dict[str, float] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the ground truth as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


@dataclass
class RunningServer:
    """A vLLM that can be restarted at the same address."""

    port: int
    otlp_port: int
    log: Path
    command: Sequence[str]
    process: subprocess.Popen[bytes]

    @property
    def replica(self) -> str:
        """The server's service.instance.id."""
        return f"vllm-{self.port}"

    def engine_cores(self) -> list[int]:
        """The process ids of the server's engine cores."""
        return serve.engine_cores(self.process)

    def restart(self, arguments: tuple[str, ...]) -> None:
        """See `DisturbedServer`."""
        serve.stop(self.process)
        self.process = _start(self.port, self.otlp_port, self.log, self.command, arguments)

    def warm_up(self) -> None:
        """Send requests that cause steps of all kinds, so that the step model can be fitted."""
        long = [Call(chat=False, prompt="long " * size, max_tokens=4) for size in (60, 120, 180)]
        # The engine compiles some kernels at their first use.
        rare = [Call(chat=False, prompt="rare", max_tokens=4, body={"logprobs": 20})]
        send_all(self.port, rare, concurrency=1)
        send_all(self.port, mixed(40, seed=5) + long * 3 + mixed(20, seed=6), concurrency=6)


def _start(
    port: int, otlp_port: int, log: Path, command: Sequence[str], arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "VLLM_SERVER_DEV_MODE": "1",  # allows to empty the prefix cache
        "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=vllm-{port},cloud.region=here",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            serve.command(port, ("--max-model-len", "8192", *arguments), command),
            env=serve.environment(f"http://127.0.0.1:{otlp_port}", environ),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        healthy = serve.wait_until_healthy(port, process)
    except BaseException:  # Ctrl-C does not end the server, because the server has its own session.
        serve.stop(process)
        raise
    if not healthy:
        serve.stop(process)
        raise RecordingError(f"vLLM did not start:\n{_last_words(log)}")
    return process


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-12:])


@contextmanager
def collecting(folder: Path) -> Iterator[int]:
    """Run a Tailspan that stores its data in `folder`/tailspan.db. Yields its OTLP port."""
    database = f"sqlite:///{folder / 'tailspan.db'}"
    with Tailspan(folder, "up", "--no-explorer", "--database", database) as up:
        yield up.is_up().port("http")
        up.stop()


@contextmanager
def serving(
    folder: Path, otlp_port: int, arguments: tuple[str, ...], command: Sequence[str] = ()
) -> Iterator[RunningServer]:
    """Run a vLLM with these arguments, and warm it up.

    Args:
        command: see `rig.serve.command`.
    """
    port, log = free_port(), folder / "vllm.log"
    process = _start(port, otlp_port, log, command, arguments)
    server = RunningServer(port, otlp_port, log, command, process)
    try:
        server.warm_up()
        yield server
    finally:
        serve.stop(server.process)


def record(
    faults: Sequence[ServerFault],
    folder: Path,
    *,
    seed: int,
    severity: float,
    before_s: float,
    during_s: float,
    log_line: Callable[[str], None],
    command: Sequence[str] = (),
    repeats: int = 1,
) -> list[Path]:
    """Record each fault into its own folder inside `folder`, and return the folders.

    Args:
        command: see `rig.serve.command`.
        repeats: how often each fault is recorded. The faults take turns, with the same seeds each
            time.
    """
    ordered = sorted(faults, key=lambda fault: (fault.arguments, repr(fault.usual)))
    found: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (arguments, group) in enumerate(groupby(ordered, lambda fault: fault.arguments)):
        shared = folder / f"server-{number}"
        shared.mkdir()
        truths: list[InjectedFault] = []
        with collecting(shared) as otlp_port:
            log_line(f"vLLM with {' '.join(arguments)} …")
            with serving(shared, otlp_port, arguments, command) as server:
                for usual, same in groupby(group, lambda fault: fault.usual):
                    wait_for_quiet()
                    baseline = record_interval(server, usual, f"{seed}/before", before_s)[0]
                    for fault in list(same) * repeats:
                        log_line(f"  {fault.cause} …")
                        truths.append(_suffer(server, fault, baseline, seed, severity, during_s))
                time.sleep(EXPORTED_S)
        rounds = Counter[str]()
        for truth in truths:
            rounds[truth.cause] += 1
            later = f"-{rounds[truth.cause]}" if rounds[truth.cause] > 1 else ""
            case = folder / f"{truth.cause}{later}"
            case.mkdir()
            _copy(shared / "tailspan.db", case / "tailspan.db")
            truth.write(case / "truth.json")
            found.append(case)
    return found


def _suffer(
    server: RunningServer,
    fault: ServerFault,
    baseline: RecordedInterval,
    seed: int,
    severity: float,
    during_s: float,
) -> InjectedFault:
    if fault.arguments_after is not None:
        server.restart(fault.arguments_after)
        server.warm_up()
    wait_for_quiet()
    # All periods have the same seed, so their prompts are equal, and prompts of an earlier period
    # could still be cached.
    serve.empty_prefix_cache(server.port)
    with fault.disturb(server, random.Random(f"{seed}/disturb")):
        window, answered, failed = record_interval(server, fault.during, f"{seed}/under", during_s)
    if fault.delayed:
        window = replace(window, ended_s=max(window.ended_s, time.time()))
    return InjectedFault(
        cause=fault.cause,
        metric=fault.metric,
        baseline=baseline,
        window=window,
        arguments=fault.arguments,
        arguments_after=fault.arguments_after,
        replica=server.replica,
        seed=seed,
        severity=severity,
        answered=answered,
        failed=failed,
        notes=fault.notes,
    )


def record_interval(
    server: RunningServer, traffic: PlannedTraffic, seed: str, seconds: float
) -> tuple[RecordedInterval, int, int]:
    """Send the traffic of one period.

    Return the period, and the numbers of answered and unanswered requests.
    """
    meter = Meter()
    begun_s = time.time()
    outcome = send_on_time(server.port, traffic.arrivals(seed, seconds))
    others_cpus = round(meter.cpus(), 2)
    return (
        RecordedInterval(begun_s, begun_s + seconds, others_cpus),
        outcome.answered,
        outcome.failed,
    )


def _copy(source: Path, target: Path) -> None:
    with sqlite3.connect(source) as reading, sqlite3.connect(target) as writing:
        reading.backup(writing)
