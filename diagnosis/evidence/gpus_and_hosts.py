"""Measurements of GPUs and hosts, in the baseline and in the window.

Pure. Each function returns (before, now). None means an unknown value.
"""

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.inputs.requests import BoolArray

Pair = tuple[float | None, float | None]


def _both(case: Case) -> tuple[BoolArray, BoolArray]:
    return case.rows_before(case.servers.gpus), case.rows_now(case.servers.gpus)


def gpu_mean(case: Case, name: str) -> Pair:
    """Return the mean of a GPU gauge over the GPUs of the slow replicas."""
    before, now = _both(case)
    return case.servers.gpus.mean(name, before), case.servers.gpus.mean(name, now)


def gpu_share_with(case: Case, name: str) -> Pair:
    """Return the share of GPU samples in which a text field is not empty."""
    before, now = _both(case)
    return _share_with(case, name, before), _share_with(case, name, now)


def _share_with(case: Case, name: str, rows: BoolArray) -> float | None:
    texts = case.servers.gpus.texts.get(name)
    if texts is None:
        return None
    codes = texts.codes[rows]
    codes = codes[codes >= 0]
    if not codes.size:
        return None
    silent = texts.values.index("") if "" in texts.values else -1
    return float((codes != silent).mean())


def gpu_outlier(case: Case, name: str) -> tuple[float | None, float | None, str | None]:
    """Return the largest deviation of a GPU from its replica's other GPUs, before and now, and the
    GPU's name.

    The deviation is relative to the median of the other GPUs. All are None if no replica has
    several GPUs.
    """
    before, now = _both(case)
    apart, gpu = _farthest(case, name, now)
    if gpu is None:
        return None, None, None
    return _apart_of(case, name, before, gpu), apart, gpu


def _by_gpu(case: Case, name: str, rows: BoolArray) -> dict[str, dict[str, float]]:
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


def _apart(means: dict[str, float], gpu: str) -> float:
    peers = float(np.median([value for name, value in means.items() if name != gpu]))
    return abs(means[gpu] - peers) / peers if peers > 0 else 0.0


def _farthest(case: Case, name: str, rows: BoolArray) -> tuple[float | None, str | None]:
    best: tuple[float | None, str | None] = (None, None)
    for means in _by_gpu(case, name, rows).values():
        if len(means) < 2:
            continue
        for gpu in means:
            apart = _apart(means, gpu)
            if best[0] is None or apart > best[0]:
                best = (apart, gpu)
    return best


def _apart_of(case: Case, name: str, rows: BoolArray, gpu: str) -> float | None:
    found = [
        _apart(means, gpu)
        for means in _by_gpu(case, name, rows).values()
        if gpu in means and len(means) > 1
    ]
    return max(found, default=None)


def foreign_cpus(case: Case) -> Pair:
    """Return the number of CPUs that processes other than the API server and the engine use."""
    (busy_before, busy_now) = case.rate("host_cpu_busy_s_total")
    (api_before, api_now) = case.rate("process_cpu_s_total")
    (core_before, core_now) = case.rate("core_cpu_s_total")

    def foreign(busy: float | None, *own: float | None) -> float | None:
        return None if busy is None else max(0.0, busy - sum(each or 0.0 for each in own))

    return foreign(busy_before, api_before, core_before), foreign(busy_now, api_now, core_now)
