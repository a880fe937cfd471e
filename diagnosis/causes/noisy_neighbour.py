"""Another process uses the same GPU or CPUs; the clocks are unchanged."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.gpus_and_hosts import foreign_cpus, gpu_mean
from diagnosis.evidence.slow_machines import slow_servers_showing, weights_of_slow_servers
from diagnosis.growth.case import DiagnosisCase

ID = "noisy_neighbour"
SUMMARY = "another process uses the same GPU or CPUs; their clocks are unchanged"

_FOREIGN_CPUS = 0.3
"""Minimum increase of the number of CPUs that other processes use."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Return the part of the latency's growth that the cause explains (its claim). The claim is the
    slowdown of servers with one of these problems: other processes use the GPU, other processes use
    more CPUs, or the hypervisor steals CPU time."""
    times = slow_servers_showing(case, _others_use_hardware)
    if not times:
        return None
    servers = list(times)
    where = case.at(servers[0]) if len(servers) == 1 else case
    return Claim(
        cause=ID,
        weights=weights_of_slow_servers(case, times),
        evidence=[
            Evidence("slowdown for the same work, factor", 1.0, max(times.values())),
            Evidence("other processes on the GPU", *gpu_mean(where, "foreign_processes")),
            Evidence("CPUs used by other processes", *foreign_cpus(where)),
            Evidence("CPUs stolen by the hypervisor", *where.rate("host_cpu_steal_s_total")),
            Evidence("SM clock, Hz", *gpu_mean(where, "sm_clock_hz")),
        ],
        levers=[
            Lever("give the server exclusive use of its GPU and cores (MIG, cpuset, a taint)"),
            Lever("find the other process with nvidia-smi and top, and move it"),
        ],
        where=case.where_of(*servers),
    )


def _others_use_hardware(case: DiagnosisCase) -> bool:
    guests_before, guests_now = gpu_mean(case, "foreign_processes")
    cpus_before, cpus_now = foreign_cpus(case)
    steal_before, steal_now = case.rate("host_cpu_steal_s_total")
    guests = (guests_now or 0.0) > (guests_before or 0.0) + 0.2
    others = (cpus_now or 0.0) > (cpus_before or 0.0) + _FOREIGN_CPUS
    stolen = (steal_now or 0.0) > (steal_before or 0.0) + 0.1
    return guests or others or stolen
