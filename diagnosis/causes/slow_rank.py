"""One GPU of a replica is slow. The other GPUs of its group wait for it in every step."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.gpus_and_hosts import gpu_mean, gpu_outlier
from diagnosis.evidence.slow_machines import slow_servers_showing, weights_of_slow_servers
from diagnosis.growth.case import DiagnosisCase

ID = "slow_rank"
SUMMARY = "one GPU of a replica is slow: the other GPUs of its group wait for it in every step"

_APART = 0.15
"""Minimum increase of a GPU's deviation. The deviation is the difference from the median activity
of the replica's other GPUs, as a share of this median. In simulated slow ranks, the median increase
was 0.8."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the slowdown of servers that have a GPU with unusual activity."""
    times = slow_servers_showing(case, _gpus_differ)
    if not times:
        return None
    servers = list(times)
    where = case.at(servers[0])
    apart_before, apart_now, gpu = gpu_outlier(where, "sm_active_ratio")
    return Claim(
        cause=ID,
        weights=weights_of_slow_servers(case, times),
        evidence=[
            Evidence("slowdown for the same work, factor", 1.0, max(times.values())),
            Evidence(
                f"SM activity of GPU {gpu}, difference from its peers, ratio",
                apart_before,
                apart_now,
            ),
            Evidence("SM clock, Hz", *gpu_mean(where, "sm_clock_hz")),
        ],
        levers=[
            Lever(
                f"check GPU {gpu} and its link (nvidia-smi nvlink -e, dcgmi diag), or replace it"
            ),
        ],
        where={**case.where_of(servers[0]), "gpu": gpu or ""},
    )


def _gpus_differ(case: DiagnosisCase) -> bool:
    apart_before, apart_now, gpu = gpu_outlier(case, "sm_active_ratio")
    return gpu is not None and apart_now is not None and apart_now >= (apart_before or 0.0) + _APART
