"""Real servers under a planned load, and the telemetry that they send."""

import os
import pickle
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from collector.server import Collector
from collector.testing import MemorySink, running
from rig import serve
from rig.load import Call, send
from rig.ports import free_port
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

EXPORTED_S = 6.0
"""Seconds to wait for the plugin's last batch, which is sent within five seconds."""
CLIENTS = 256
"""Maximum number of requests in flight."""

Planned = Sequence[tuple[float, Call]]
"""Requests, each with its time in seconds since the start of the load."""


@dataclass(frozen=True)
class ServerRecording:
    """The data that the servers reported, and the start time of the load."""

    begun_unix_ns: int
    requests: list[RequestTimeline]
    samples: list[EngineSample]
    starts: list[EngineStart]


def record(
    planned: Planned,
    arguments: Sequence[str] = (),
    servers: int = 1,
    command: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    during: AbstractContextManager[object] | None = None,
    one_core: bool = False,
) -> ServerRecording:
    """Start servers, send each request at its planned time, and stop the servers.

    With several servers, requests are sent to them in rotation, as by a round-robin router.

    Args:
        planned: each request is sent at its time, even if earlier ones have not ended.
        arguments: vLLM's arguments in addition to those of `rig.serve`.
        command: starts another server instead of the tiny model; see `rig.serve.command`.
        during: a context manager that is active while the load is sent.
        one_core: whether each server runs on one CPU core of its own.

    Raises:
        RuntimeError: a server did not start.
    """
    sink = MemorySink()
    with running(Collector(sink, grpc_port=0, http_port=0)) as collector:
        ports = [free_port() for _ in range(servers)]
        processes = [
            subprocess.Popen(
                [
                    *(["taskset", "--cpu-list", str(number)] if one_core else []),
                    *serve.command(port, ["--no-enable-log-requests", *arguments], command),
                ],
                env=serve.environment(
                    f"http://127.0.0.1:{collector.grpc_port}", {**os.environ, **(variables or {})}
                ),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for number, port in enumerate(ports)
        ]
        try:
            for port, process in zip(ports, processes, strict=True):
                if not serve.wait_until_healthy(port, process):
                    raise RuntimeError("the server did not start")
            begun, begun_ns = time.monotonic(), time.time_ns()
            with during or nullcontext(), ThreadPoolExecutor(CLIENTS) as pool:
                for number, (at_s, call) in enumerate(planned):
                    time.sleep(max(0.0, begun + at_s - time.monotonic()))
                    pool.submit(send, ports[number % servers], call)
            time.sleep(EXPORTED_S)
        finally:
            for process in processes:
                serve.stop(process)
    return ServerRecording(begun_ns, sink.requests, sink.samples, sink.starts)


def record_once(
    kept: Path | None,
    planned: Planned,
    arguments: Sequence[str] = (),
    servers: int = 1,
    command: Sequence[str] = (),
    one_core: bool = False,
) -> ServerRecording:
    """Return the recording of an earlier run from a file. If the file does not exist, call `record`
    and write the recording to the file.

    Args:
        kept: the file; None to record without a file. Read only your own files, because unpickling
            a file can execute code in it.

    Raises:
        RuntimeError: a server did not start.
    """
    if kept is not None and kept.exists():
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]
    recording = record(planned, arguments, servers, command, one_core=one_core)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(recording))
    return recording
