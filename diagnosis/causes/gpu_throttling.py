"""The GPU lowers its clock (heat, power): prefill and decode slow down alike."""

from diagnosis.case import Case
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.hardware import gpu_mean, gpu_share_with
from diagnosis.causes.machine import slowed, slowness

ID = "gpu_throttling"
SUMMARY = "the GPU lowers its clock (heat, power): prefill and decode slow down alike"

_CLOCK = 0.95
"""Of the baseline's clock: less than that is no boost's whim."""


def detect(case: Case) -> Claim | None:
    """Claims the slower pace, where clocks or throttle reasons say so."""
    times = slowness(case)
    clock_before, clock_now = gpu_mean(case, "sm_clock_hz")
    reasons_before, reasons_now = gpu_share_with(case, "throttle_reasons")
    lower = clock_before and clock_now and clock_now < _CLOCK * clock_before
    throttled = reasons_now is not None and reasons_now > (reasons_before or 0.0) + 0.2
    if times is None or not (lower or throttled):
        return None
    return Claim(
        cause=ID,
        weights=slowed(case, times),
        evidence=[
            Evidence("times longer for the same work", 1.0, times),
            Evidence("SM clock, Hz", clock_before, clock_now),
            Evidence("samples with a reason to throttle, ratio", reasons_before, reasons_now),
            Evidence("power, W", *gpu_mean(case, "power_w")),
        ],
        levers=[
            Lever("drain the replica and look at its cooling and its power cap"),
            Lever("raise the power limit (nvidia-smi -pl) where the rack allows it"),
        ],
        where={"replica": case.victims[0]} if len(case.victims) == 1 else {},
    )
