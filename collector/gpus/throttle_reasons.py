"""Names of the bits in an NVIDIA driver's throttle mask. "idle" is left out, because it delays no
work.

Source: NVML, `nvmlClocksEventReasons`. A dcgm-exporter reports the same mask.
"""

from collections.abc import Mapping
from typing import Final

from telemetry.gpus import throttle_reasons

IDLE: Final = 0x1
REASONS: Final[Mapping[int, str]] = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def reasons_of(mask: int) -> str:
    """The reasons in a mask, in the format of `GpuSample`. An unknown bit becomes `reason_0x…`."""
    bits = (1 << place for place in range(mask.bit_length()))
    found = {bit for bit in bits if mask & bit and bit != IDLE}
    return throttle_reasons({REASONS.get(bit, f"reason_{bit:#x}") for bit in found})
