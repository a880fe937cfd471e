import pynvml
import pytest

from collector.gpus.amd_smi import REASONS as AMD_REASONS
from collector.gpus.throttle_reasons import IDLE, REASONS, reasons_of
from telemetry.gpus import THROTTLE_REASONS


def test_every_throttle_bit_of_the_package_has_a_name() -> None:
    known = {
        getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith(("nvmlClocksEventReason", "nvmlClocksThrottleReason"))
        and not name.endswith(("All", "None"))
    }
    assert known == {IDLE, *REASONS}
    assert {*REASONS.values(), *AMD_REASONS} == THROTTLE_REASONS


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ""),
        (IDLE, ""),
        (IDLE | 0x4, "sw_power_cap"),
        (0x8 | 0x40, "hw_slowdown,hw_thermal_slowdown"),
        (0x8000, "reason_0x8000"),
    ],
)
def test_a_throttle_mask_is_decoded_to_names(mask: int, words: str) -> None:
    assert reasons_of(mask) == words
