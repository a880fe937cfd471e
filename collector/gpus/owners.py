"""Whose a GPU is, and who else is at work on it.

In this order: what the user says; the labels of a dcgm-exporter; the processes that compute on
it, by their ancestors; CUDA_VISIBLE_DEVICES of the replicas' own processes. Where no engine is
heard of, as by an agent, the host and port of the server that those processes work for, which is
a replica's name unless somebody gave it another. A GPU of nobody is told of under its machine's
name, so that an idle one stays in sight.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from collector.gpus.configured_owners import ALL, Claims, names_of
from collector.gpus.cuda_visible_devices import visible
from collector.gpus.process_replica import Known, by_process, host_of, replica_of, server_of
from collector.gpus.processes import Processes
from collector.gpus.reader import Told
from collector.normalise.values import MAX_TEXT_CHARS
from collector.sink import Listener
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample, GpuSource
from telemetry.requests import RequestTimeline, Source

MOST_KNOWN: Final = 4_096
SILENT_NS: Final = 300 * 10**9
"""An engine that lives tells every second; after this its process id may be another's."""

_log = logging.getLogger(__name__)


class Owners(Listener):
    """Finds out whose GPUs are; itself a listener, to hear which processes engines name.

    Args:
        host: this machine's name.
        processes: of this machine.
        claims: what the user says.
        clock_unix_ns: the present.
        hears: whether engines will be heard of here.
    """

    def __init__(
        self,
        host: str,
        processes: Processes,
        claims: Claims,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        *,
        hears: bool = True,
    ) -> None:
        self._hears = hears
        self._host = host
        self._processes = processes
        self._claims = claims
        self._clock_unix_ns = clock_unix_ns
        self._heard: dict[tuple[str, int], tuple[Known, int]] = {}
        self._lock = threading.Lock()
        self._left_out = 0
        self._unseen = set(claims.by_gpu) - {ALL}

    @property
    def unseen(self) -> list[str]:
        """GPUs that the user spoke of and nobody told of yet."""
        return sorted(self._unseen)

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Note the processes of engines. A scrape knows of none, a simulation has none."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            # Once a message: senders may make up names, and each look takes as long as there are.
            if len(self._heard) >= MOST_KNOWN:
                self._forget(now_unix_ns)
            for each in samples:
                if each.simulated or each.source is Source.SCRAPE or each.process <= 0:
                    continue
                key = each.replica, each.process
                if key not in self._heard and len(self._heard) >= MOST_KNOWN:
                    if not self._left_out:
                        _log.warning(
                            "gpus: more than %d processes of engines: GPUs of the rest are not"
                            " assigned by process",
                            MOST_KNOWN,
                        )
                    self._left_out += 1
                    continue
                # With gauges alone its start is the sample's own instant, and says nothing.
                counts = each.started_unix_ns != each.at_unix_ns
                known = Known(*key, each.started_unix_ns if counts else None)
                self._heard[key] = known, now_unix_ns

    def own(self, gpus: Sequence[Told]) -> list[GpuSample]:
        """The samples of GPUs, each with its replica.

        Args:
            gpus: of one reading. May be called from any thread.
        """
        with self._lock:
            self._forget(self._clock_unix_ns())
            known = [each for each, _ in self._heard.values()]
        told_of = {each.replica for each in known}
        of_process = self._replicas_of(gpus, known)
        if not self._hears:
            told_of |= {each for each in of_process.values() if each is not None}
        counted = {gpu.gpu: _counted(gpu, of_process) for gpu in gpus}
        owners = {
            gpu.gpu: self._claims.said(gpu)
            or _known_as(self._claims.labelled(gpu), told_of)
            or _busiest(counted[gpu.gpu])
            for gpu in gpus
        }
        if known and None in owners.values():
            seen = self._by_variable(gpus, known)
            owners = {gpu: owner or seen.get(gpu) for gpu, owner in owners.items()}
        samples = []
        for gpu in gpus:
            self._unseen.difference_update(names_of(gpu))
            owner = owners[gpu.gpu]
            foreign = None
            if gpu.processes is not None and (owner is None or owner in told_of):
                foreign = len(gpu.processes) - counted[gpu.gpu][owner or ""]
            replica = owner or gpu.labels.get("Hostname") or self._host
            samples.append(_sample(gpu, replica, foreign))
        return samples

    def _replicas_of(self, gpus: Sequence[Told], known: Sequence[Known]) -> dict[int, str | None]:
        pids = {pid for gpu in gpus for pid in gpu.processes or ()}
        told, world = by_process(known), self._processes
        if not self._hears:
            return {
                pid: server_of(world.ancestry(pid), self._host, world.hostname, world.port)
                for pid in pids
            }
        return {
            pid: replica_of(world.ancestry(pid), told, self._host, world.hostname, world.children)
            for pid in pids
        }

    def _by_variable(self, gpus: Sequence[Told], known: Sequence[Known]) -> dict[str, str]:
        """Replica by GPU, as the replicas' processes see them. A container numbers its own."""
        local = [gpu for gpu in gpus if gpu.source is GpuSource.NVML]
        seen: dict[str, set[str]] = {}
        for each in known if local else ():
            process = next(self._processes.ancestry(each.process), None)
            if process is None or process.contained:
                continue
            told = {each.process: [each]}
            if replica_of([process], told, self._host, self._processes.hostname) is None:
                continue
            variable = self._processes.visible_devices(process.pid)
            for gpu in visible(variable, local) if variable else ():
                seen.setdefault(gpu, set()).add(each.replica)
        return {gpu: next(iter(those)) for gpu, those in seen.items() if len(those) == 1}

    def _forget(self, now_unix_ns: int) -> None:
        horizon = now_unix_ns - SILENT_NS
        self._heard = {key: told for key, told in self._heard.items() if told[1] > horizon}


def _counted(gpu: Told, of_process: Mapping[int, str | None]) -> Counter[str]:
    """How many of a GPU's processes are each replica's."""
    replicas = (of_process[pid] for pid in gpu.processes or ())
    return Counter(replica for replica in replicas if replica is not None)


def _busiest(counted: Counter[str]) -> str | None:
    """Of several the one with most processes; the others are its neighbours."""
    return max(counted, key=lambda replica: (counted[replica], replica), default=None)


def _known_as(name: str | None, replicas: set[str]) -> str | None:
    """A name that labels made, as the replica itself has it: a server in a pod that nobody
    named is `pod:port`."""
    if name is None or name in replicas:
        return name
    there = [each for each in replicas if host_of(each) == name]
    return there[0] if len(there) == 1 else name


def _sample(gpu: Told, replica: str, foreign_processes: int | None) -> GpuSample:
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
