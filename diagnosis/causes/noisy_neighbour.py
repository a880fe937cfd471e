"""Another process uses the same GPU or CPUs, so the server gets less of their time."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.gpus_and_hosts import foreign_cpus, gpu_mean, others_use_hardware
from diagnosis.evidence.slow_machines import slow_servers_showing, weights_of_slow_servers
from diagnosis.growth.case import DiagnosisCase

ID = "noisy_neighbour"
SUMMARY = "another process uses the same GPU or CPUs, so the server gets less of their time"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the slowdown of servers that share their hardware.

    Other processes use the GPU or more CPUs, or the hypervisor steals CPU time."""
    times = slow_servers_showing(case, others_use_hardware)
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
