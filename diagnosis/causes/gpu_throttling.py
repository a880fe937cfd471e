"""The GPU lowers its clock (heat, power): prefill and decode slow down equally."""

from math import log

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.gpus_and_hosts import (
    MORE_SAMPLES,
    gpu_mean,
    gpu_share_with,
    others_use_hardware,
)
from diagnosis.evidence.slow_machines import slow_servers_showing, weights_of_slow_servers
from diagnosis.growth.case import DiagnosisCase

ID = "gpu_throttling"
SUMMARY = "the GPU lowers its clock (heat, power): prefill and decode slow down equally"

_CLOCK = 0.95
"""A GPU counts as throttled if its clock ratio (now / before) is at most this. On an H200, the mean
clock over 20 s varied by 0.1 %. It fell by up to 4 % while another process used the GPU."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the slowdown of servers with lower GPU clocks or with throttle reasons. If other
    processes use the hardware, claim only the slowdown that the lower clocks explain."""
    times = slow_servers_showing(case, _is_throttled)
    if not times:
        return None
    servers = list(times)
    where = case.at(servers[0]) if len(servers) == 1 else case
    slower = max(times.values())
    of_clock = _share_of_clock(where, slower)
    return Claim(
        cause=ID,
        weights={
            term: weight * of_clock for term, weight in weights_of_slow_servers(case, times).items()
        },
        evidence=[
            Evidence("slowdown for the same work, factor", 1.0, slower),
            Evidence("SM clock, Hz", *gpu_mean(where, "sm_clock_hz")),
            Evidence(
                "share of samples with a throttle reason",
                *gpu_share_with(where, "throttle_reasons"),
            ),
            Evidence("power, W", *gpu_mean(where, "power_w")),
        ],
        levers=[
            Lever("drain the replica and check its cooling and power cap"),
            Lever("raise the power limit (nvidia-smi -pl) where the rack allows it"),
        ],
        where=case.where_of(*servers),
    )


def _is_throttled(case: DiagnosisCase) -> bool:
    clock_before, clock_now = gpu_mean(case, "sm_clock_hz")
    reasons_before, reasons_now = gpu_share_with(case, "throttle_reasons")
    lower = bool(clock_before and clock_now and clock_now < _CLOCK * clock_before)
    throttled = reasons_now is not None and reasons_now > (reasons_before or 0.0) + MORE_SAMPLES
    return lower or throttled


def _share_of_clock(case: DiagnosisCase, slower: float) -> float:
    """The share of the slowdown (factor `slower`) that the lower clock explains.

    The share is 1 if no other process uses the hardware, or if the clock is unknown. A clock at 96
    % makes a step at most 1 / 0.96 times as long.
    """
    before, now = gpu_mean(case, "sm_clock_hz")
    if not before or not now or not others_use_hardware(case):
        return 1.0
    return min(max(log(before / now), 0.0) / log(slower), 1.0)
