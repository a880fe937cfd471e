"""Assign GPUs to replicas, and count the processes of other programs on each GPU.

The first source that names a replica is used:
- the configuration
- labels of a dcgm-exporter
- ancestors of the processes that compute on the GPU
- CUDA_VISIBLE_DEVICES of the replicas' processes
- the machine's name

An agent (`tailspan gpus --endpoint`) receives no samples of engines. It finds the server to which
the GPU's processes belong, and uses the server's default name `host:port`.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from collector.gpus.configured_owners import ALL, ConfiguredOwners, names_of
from collector.gpus.cuda_visible_devices import visible
from collector.gpus.process_replica import EngineProcess, by_process, host_of, replica_of, server_of
from collector.gpus.processes import HostProcesses
from collector.gpus.reader import GpuReading
from collector.normalise.values import MAX_TEXT_CHARS
from collector.sink import Listener
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample, GpuSource
from telemetry.requests import RequestTimeline, Source

MAX_KNOWN: Final = 4_096
SILENT_NS: Final = 300 * 10**9
"""An engine that sent no sample for this time is ignored, because its process id may be reused."""

_log = logging.getLogger(__name__)


class Owners(Listener):
    """Assigns GPUs to replicas. As a listener, it records the engines' process ids.

    Args:
        receives_engines: whether this process receives the engines' samples.
    """

    def __init__(
        self,
        host: str,
        processes: HostProcesses,
        configured: ConfiguredOwners,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        *,
        receives_engines: bool = True,
    ) -> None:
        self._receives_engines = receives_engines
        self._host = host
        self._processes = processes
        self._configured = configured
        self._clock_unix_ns = clock_unix_ns
        self._engines: dict[tuple[str, int], tuple[EngineProcess, int]] = {}
        self._lock = threading.Lock()
        self._left_out = 0
        self._unseen = set(configured.by_gpu) - {ALL}

    @property
    def unseen(self) -> list[str]:
        """Configured GPUs that no reader has reported yet."""
        return sorted(self._unseen)

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Record the process ids of engines. Scraped and simulated engines have no process id."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            # Clean up once per message and not per sample, because senders may invent any number of
            # replica names.
            if len(self._engines) >= MAX_KNOWN:
                self._forget(now_unix_ns)
            for each in samples:
                if each.simulated or each.source is Source.SCRAPE or each.process <= 0:
                    continue
                key = each.replica, each.process
                if key not in self._engines and len(self._engines) >= MAX_KNOWN:
                    if not self._left_out:
                        _log.warning(
                            "gpus: more than %d engine processes: GPUs of other processes are not"
                            " assigned by process id; assign them with --gpu-replica",
                            MAX_KNOWN,
                        )
                    self._left_out += 1
                    continue
                # For an engine without counters, the start timestamp is the time of the sample.
                counts = each.started_unix_ns != each.at_unix_ns
                engine = EngineProcess(*key, each.started_unix_ns if counts else None)
                self._engines[key] = engine, now_unix_ns

    def assign(self, gpus: Sequence[GpuReading]) -> list[GpuSample]:
        """Return the samples of GPUs, each with its replica. Thread-safe."""
        with self._lock:
            self._forget(self._clock_unix_ns())
            engines = [each for each, _ in self._engines.values()]
        replicas = {each.replica for each in engines}
        of_process = self._replicas_of(gpus, engines)
        if not self._receives_engines:
            replicas |= {each for each in of_process.values() if each is not None}
        counted = {gpu.gpu: _processes_by_replica(gpu, of_process) for gpu in gpus}
        owners = {
            gpu.gpu: self._configured.assigned(gpu)
            or _full_name(self._configured.from_labels(gpu), replicas)
            or _busiest(counted[gpu.gpu])
            for gpu in gpus
        }
        if engines and None in owners.values():
            seen = self._by_variable(gpus, engines)
            owners = {gpu: owner or seen.get(gpu) for gpu, owner in owners.items()}
        samples = []
        for gpu in gpus:
            self._unseen.difference_update(names_of(gpu))
            owner = owners[gpu.gpu]
            foreign = None
            if gpu.processes is not None and (owner is None or owner in replicas):
                foreign = len(gpu.processes) - counted[gpu.gpu][owner or ""]
            replica = owner or gpu.labels.get("Hostname") or self._host
            samples.append(_sample(gpu, replica, foreign))
        return samples

    def _replicas_of(
        self, gpus: Sequence[GpuReading], engines: Sequence[EngineProcess]
    ) -> dict[int, str | None]:
        pids = {pid for gpu in gpus for pid in gpu.processes or ()}
        by_pid, machine = by_process(engines), self._processes
        if not self._receives_engines:
            return {
                pid: server_of(machine.ancestry(pid), self._host, machine.hostname, machine.port)
                for pid in pids
            }
        return {
            pid: replica_of(
                machine.ancestry(pid),
                by_pid,
                self._host,
                machine.hostname,
                machine.children,
                machine.clock_step_s,
            )
            for pid in pids
        }

    def _by_variable(
        self, gpus: Sequence[GpuReading], engines: Sequence[EngineProcess]
    ) -> dict[str, str]:
        """Map each GPU to its replica, according to CUDA_VISIBLE_DEVICES. Processes in containers
        are ignored, because a container numbers the GPUs differently."""
        local = [gpu for gpu in gpus if gpu.source is GpuSource.NVML]
        seen: dict[str, set[str]] = {}
        for each in engines if local else ():
            process = next(self._processes.ancestry(each.process), None)
            if process is None or process.contained:
                continue
            by_pid = {each.process: [each]}
            machine = self._processes
            known = replica_of(
                [process], by_pid, self._host, machine.hostname, clock_step_s=machine.clock_step_s
            )
            if known is None:
                continue
            variable = self._processes.visible_devices(process.pid)
            for gpu in visible(variable, local) if variable else ():
                seen.setdefault(gpu, set()).add(each.replica)
        return {gpu: next(iter(those)) for gpu, those in seen.items() if len(those) == 1}

    def _forget(self, now_unix_ns: int) -> None:
        horizon = now_unix_ns - SILENT_NS
        self._engines = {key: each for key, each in self._engines.items() if each[1] > horizon}


def _processes_by_replica(gpu: GpuReading, of_process: Mapping[int, str | None]) -> Counter[str]:
    replicas = (of_process[pid] for pid in gpu.processes or ())
    return Counter(replica for replica in replicas if replica is not None)


def _busiest(counted: Counter[str]) -> str | None:
    return max(counted, key=lambda replica: (counted[replica], replica), default=None)


def _full_name(name: str | None, replicas: set[str]) -> str | None:
    """The full replica name for a name from a GPU's labels. If a replica is named `pod:port`, the
    labels contain only the pod."""
    if name is None or name in replicas:
        return name
    there = [each for each in replicas if host_of(each) == name]
    return there[0] if len(there) == 1 else name


def _sample(gpu: GpuReading, replica: str, foreign_processes: int | None) -> GpuSample:
    name = gpu.model_name
    return GpuSample(
        replica=replica[:MAX_TEXT_CHARS],
        gpu=gpu.gpu[:MAX_TEXT_CHARS],
        at_unix_ns=gpu.at_unix_ns,
        source=gpu.source,
        model_name=None if name is None else name[:MAX_TEXT_CHARS],
        foreign_processes=foreign_processes,
        **{key: value for key, value in gpu.values.items() if key != "foreign_processes"},
    )
