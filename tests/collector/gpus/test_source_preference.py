from dataclasses import replace

from collector.gpus.reader import Absence, AbsenceReason, GpuReading
from collector.gpus.source_preference import SILENT_NS, SourcePreference
from tests.collector.gpus.conftest import NOW_UNIX_NS
from tests.collector.gpus.making import of_dcgm, reading

BANDWIDTH = {"dram_bandwidth_ratio": 0.5}


def _absent(why: AbsenceReason) -> dict[str, Absence]:
    return {"dram_bandwidth_ratio": Absence(why)}


OLD = reading(absent=_absent(AbsenceReason.NOT_SUPPORTED))
HOPPER = reading(values=BANDWIDTH)
FIRST = reading(absent=_absent(AbsenceReason.FIRST_LOOK))
EXPORTER = replace(of_dcgm(), values=BANDWIDTH)


def kept(*gpus: GpuReading) -> list[bool]:
    preference = SourcePreference()
    return [preference.keeps(gpu) for gpu in gpus]


def test_a_source_with_bandwidth_is_preferred() -> None:
    assert kept(OLD, EXPORTER, OLD, EXPORTER) == [True, True, False, True]


def test_the_driver_is_preferred_if_two_readers_have_bandwidth() -> None:
    """The driver is read every second, and its first reading has values."""
    assert kept(EXPORTER, FIRST, EXPORTER, HOPPER, FIRST, EXPORTER) == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]


def test_a_silent_source_is_replaced_after_a_minute() -> None:
    preference = SourcePreference()
    assert preference.keeps(HOPPER)
    later = replace(EXPORTER, at_unix_ns=NOW_UNIX_NS + SILENT_NS)
    assert not preference.keeps(later)
    assert preference.keeps(replace(later, at_unix_ns=NOW_UNIX_NS + SILENT_NS + 1))


def test_a_silent_source_is_replaced_after_the_clock_was_set_back() -> None:
    preference = SourcePreference()
    assert preference.keeps(HOPPER)
    assert preference.keeps(replace(EXPORTER, at_unix_ns=NOW_UNIX_NS - 2 * SILENT_NS))


def test_each_gpu_has_its_own_source() -> None:
    assert kept(HOPPER, replace(EXPORTER, gpu="GPU-2")) == [True, True]
