"""Real servers under a planned load, and the telemetry that they send."""

import os
import pickle
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
"""The plugin sends its last batch within five seconds."""
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


def record_in_turn(
    loads: Sequence[Planned],
    arguments: Sequence[str] = (),
    servers: int = 1,
    command: Sequence[str] = (),
    *,
    one_core: bool = False,
    skip_s: float = 0.0,
) -> Iterator[ServerRecording]:
    """Start servers, send the loads one after the other, and yield each load's recording.

    Several servers get the requests in rotation. The prefix caches are emptied before each load
    after the first.

    Args:
        loads: the loads. Each request is sent at its planned time, even if earlier requests have
            not ended.
        arguments: vLLM's arguments in addition to those of `rig.serve`.
        command: see `rig.serve.command`.
        one_core: True if each server runs on one CPU core of its own.
        skip_s: each load after the first begins at this time of its plan, because the servers are
            warm.

    Raises:
        RuntimeError: a server did not start.
        urllib.error.HTTPError: a server did not empty its prefix cache.
    """
    # vLLM empties its prefix cache on request only in development mode.
    variables = {"VLLM_SERVER_DEV_MODE": "1"} if len(loads) > 1 else {}
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
                    f"http://127.0.0.1:{collector.grpc_port}", {**os.environ, **variables}
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
            for place, planned in enumerate(loads):
                skipped_s = skip_s if place else 0.0
                if place:
                    for port in ports:
                        serve.empty_prefix_cache(port)
                earlier, sampled = len(sink.requests), len(sink.samples)
                begun_s = time.monotonic() - skipped_s
                begun_ns = time.time_ns() - round(skipped_s * 1e9)
                with ThreadPoolExecutor(CLIENTS) as pool:
                    for number, (at_s, call) in enumerate(planned):
                        if at_s < skipped_s:
                            continue
                        time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
                        pool.submit(send, ports[number % servers], call)
                time.sleep(EXPORTED_S)
                yield ServerRecording(
                    begun_ns, sink.requests[earlier:], sink.samples[sampled:], [*sink.starts]
                )
        finally:
            for process in processes:
                serve.stop(process)


def record_once(
    folder: Path | None,
    loads: Mapping[str, Planned],
    arguments: Sequence[str] = (),
    servers: int = 1,
    command: Sequence[str] = (),
    one_core: bool = False,
    *,
    skip_s: float = 0.0,
) -> dict[str, ServerRecording]:
    """Return the recordings of an earlier run, or record the loads and write files.

    Args:
        folder: the folder of the files; None to record without files. Read only your own files,
            because unpickling a file can execute code in it.
        loads: maps the name of each recording to its load.

    Raises:
        RuntimeError: a server did not start.
        urllib.error.HTTPError: a server did not empty its prefix cache.
    """
    files = {} if folder is None else {name: folder / f"{name}.pickle" for name in loads}
    if files and all(file.exists() for file in files.values()):
        return {name: pickle.loads(file.read_bytes()) for name, file in files.items()}
    recordings = {}
    planned = [*loads.values()]
    in_turn = record_in_turn(planned, arguments, servers, command, one_core=one_core, skip_s=skip_s)
    for name, recording in zip(loads, in_turn, strict=True):
        recordings[name] = recording
        if (file := files.get(name)) is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(pickle.dumps(recording))
    return recordings
