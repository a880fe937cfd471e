"""Measurements of GPUs and hosts, as pairs of the values in the baseline and in the window. None
means an unknown value. Pure."""

from typing import Final

import numpy as np

from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import BoolArray
from diagnosis.inputs.servers import Samples

Pair = tuple[float | None, float | None]

MORE_SAMPLES: Final = 0.2
"""Minimum increase of the share of GPU samples that report an observation, such as a throttle
reason. Without a fault, the share does not increase. With a fault, it increases by nearly 1."""
_FOREIGN_CPUS: Final = 0.3
"""Minimum increase of the number of CPUs that other processes use or the hypervisor takes. On the
host of an H200 without a fault, other processes used 0.20 to 0.27 CPUs."""


def _rows_before_and_now(case: DiagnosisCase) -> tuple[BoolArray, BoolArray]:
    return case.rows_before(case.servers.gpus), case.rows_now(case.servers.gpus)


def gpu_mean(case: DiagnosisCase, name: str) -> Pair:
    """Return the mean of a GPU gauge over the GPUs of the slow replicas."""
    before, now = _rows_before_and_now(case)
    return case.servers.gpus.mean(name, before), case.servers.gpus.mean(name, now)


def gpu_share_with(case: DiagnosisCase, name: str) -> Pair:
    """Return the share of GPU samples in which a text field is not empty."""
    before, now = _rows_before_and_now(case)
    return _share_with(case, name, before), _share_with(case, name, now)


def _share_with(case: DiagnosisCase, name: str, rows: BoolArray) -> float | None:
    texts = case.servers.gpus.texts.get(name)
    if texts is None:
        return None
    codes = texts.codes[rows]
    codes = codes[codes >= 0]
    if not codes.size:
        return None
    silent = texts.values.index("") if "" in texts.values else -1
    return float((codes != silent).mean())


def gpu_outlier(case: DiagnosisCase, name: str) -> tuple[float | None, float | None, str | None]:
    """Return the deviations and the name of the GPU that deviates most in the window.

    There are two deviations: in the baseline and in the window. All values are None if no replica
    has several GPUs.

    The deviation is the difference from the median of the replica's other GPUs, divided by this
    median.
    """
    before, now = _rows_before_and_now(case)
    apart, gpu = _gpu_farthest_from_peers(case, name, now)
    if gpu is None:
        return None, None, None
    return _apart_of(case, name, before, gpu), apart, gpu


def _by_gpu(case: DiagnosisCase, name: str, rows: BoolArray) -> dict[str, dict[str, float]]:
    gpus = case.servers.gpus
    label, values = gpus.texts.get("gpu"), gpus.number(name)
    found: dict[str, dict[str, float]] = {}
    if label is None:
        return found
    for replica in np.unique(gpus.replica.codes[rows]):
        for gpu in np.unique(label.codes[rows]):
            chosen = rows & (gpus.replica.codes == replica) & (label.codes == gpu)
            known = values[chosen & np.isfinite(values)]
            if known.size:
                of = found.setdefault(gpus.replica.values[replica], {})
                of[label.values[gpu]] = float(known.mean())
    return found


def _difference_from_peers(means: dict[str, float], gpu: str) -> float:
    peers = float(np.median([value for name, value in means.items() if name != gpu]))
    return abs(means[gpu] - peers) / peers if peers > 0 else 0.0


def _gpu_farthest_from_peers(
    case: DiagnosisCase, name: str, rows: BoolArray
) -> tuple[float | None, str | None]:
    best: tuple[float | None, str | None] = (None, None)
    for means in _by_gpu(case, name, rows).values():
        if len(means) < 2:
            continue
        for gpu in means:
            apart = _difference_from_peers(means, gpu)
            if best[0] is None or apart > best[0]:
                best = (apart, gpu)
    return best


def _apart_of(case: DiagnosisCase, name: str, rows: BoolArray, gpu: str) -> float | None:
    found = [
        _difference_from_peers(means, gpu)
        for means in _by_gpu(case, name, rows).values()
        if gpu in means and len(means) > 1
    ]
    return max(found, default=None)


def foreign_cpus(case: DiagnosisCase) -> Pair:
    """Return the number of CPUs used by processes that are neither API servers nor engines."""
    engines = case.servers.engines
    before = case.rows_before(engines, whole_replicas=True)
    now = case.rows_now(engines, whole_replicas=True)
    return _foreign_cpus(engines, before), _foreign_cpus(engines, now)


def others_use_hardware(case: DiagnosisCase) -> bool:
    """Return whether other processes use more of the GPU or the CPUs, or the hypervisor takes more
    CPU time."""
    guests_before, guests_now = gpu_mean(case, "foreign_processes")
    cpus_before, cpus_now = foreign_cpus(case)
    steal_before, steal_now = case.rate("host_cpu_steal_s_total")
    guests = (guests_now or 0.0) > (guests_before or 0.0) + MORE_SAMPLES
    others = (cpus_now or 0.0) > (cpus_before or 0.0) + _FOREIGN_CPUS
    stolen = (steal_now or 0.0) > (steal_before or 0.0) + _FOREIGN_CPUS
    return guests or others or stolen


def _foreign_cpus(engines: Samples, rows: BoolArray) -> float | None:
    busy = engines.rate("host_cpu_busy_s_total", rows)
    if busy is None:
        return None
    api = _rate_of_all(engines, "process_cpu_s_total", "process", rows)
    core = _rate_of_all(engines, "core_cpu_s_total", "engine", rows)
    return max(0.0, busy - api - core)


def _rate_of_all(engines: Samples, name: str, each: str, rows: BoolArray) -> float:
    """A counter's increase per second, summed over a replica's processes or engines.

    The result is the mean over the replicas.

    If several samples report the same process or engine, it counts once.
    """
    which, replica = engines.number(each), engines.replica
    known = rows & np.isfinite(engines.number(name)) & (replica.codes >= 0)
    total, replicas = 0.0, np.unique(replica.codes[known])
    for code in replicas:
        there = known & (replica.codes == code)
        for number in np.unique(np.nan_to_num(which[there])):
            total += engines.rate(name, there & (np.nan_to_num(which) == number)) or 0.0
    return total / max(replicas.size, 1)
