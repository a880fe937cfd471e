"""One GPU that two tell of."""

from dataclasses import replace

from collector.gpus.reader import Absence, GpuReading, Why
from collector.gpus.source_preference import SILENT_NS, SourcePreference
from tests.collector.gpus.conftest import NOW_UNIX_NS
from tests.collector.gpus.making import of_dcgm, told

BANDWIDTH = {"dram_bandwidth_ratio": 0.5}


def _absent(why: Why) -> dict[str, Absence]:
    return {"dram_bandwidth_ratio": Absence(why)}


OLD = told(absent=_absent(Why.NOT_SUPPORTED))
HOPPER = told(values=BANDWIDTH)
FIRST = told(absent=_absent(Why.FIRST_LOOK))
EXPORTER = replace(of_dcgm(), values=BANDWIDTH)


def kept(*gpus: GpuReading) -> list[bool]:
    """Which of them are listened to."""
    preference = SourcePreference()
    return [preference.keeps(gpu) for gpu in gpus]


def test_who_tells_of_bandwidth_goes_first() -> None:
    """A driver of an older GPU makes way for an exporter, whoever comes first."""
    assert kept(OLD, EXPORTER, OLD, EXPORTER) == [True, True, False, True]


def test_of_two_that_do_the_driver_goes_first() -> None:
    """It is asked every second; its first look is as good as the second."""
    assert kept(EXPORTER, FIRST, EXPORTER, HOPPER, FIRST, EXPORTER) == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]


def test_one_that_falls_silent_makes_way() -> None:
    """After a minute the other is all there is."""
    preference = SourcePreference()
    assert preference.keeps(HOPPER)
    later = replace(EXPORTER, at_unix_ns=NOW_UNIX_NS + SILENT_NS)
    assert not preference.keeps(later)
    assert preference.keeps(replace(later, at_unix_ns=NOW_UNIX_NS + SILENT_NS + 1))


def test_gpus_do_not_stand_in_each_others_way() -> None:
    """Each has its own teller."""
    assert kept(HOPPER, replace(EXPORTER, gpu="GPU-2")) == [True, True]
