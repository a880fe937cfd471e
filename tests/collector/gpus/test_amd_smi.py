import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.gpus import amd_smi
from collector.gpus.amd_smi import REOPEN_S, AmdSmiReader
from collector.gpus.reader import AbsenceReason, GpuReading, ReaderError
from telemetry.gpus import GpuSource
from tests.collector.gpus.amd import CODES, AmdSmi
from tests.collector.gpus.conftest import NOW_UNIX_NS, Clock


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> AmdSmi:
    library = AmdSmi()
    monkeypatch.setattr(amd_smi, "load", lambda: library)
    return library


@pytest.fixture
def amd(clock: Clock) -> Iterator[AmdSmiReader]:
    reader = AmdSmiReader(lambda: NOW_UNIX_NS, clock)
    yield reader
    reader.close()


def only(reader: AmdSmiReader) -> GpuReading:
    reading = reader.read()
    assert reading.failures == ()
    [gpu] = reading.gpus
    return gpu


def test_an_instinct_is_read_in_base_units(smi: AmdSmi, amd: AmdSmiReader) -> None:
    gpu = only(amd)
    assert (gpu.gpu, gpu.index, gpu.model_name) == ("uuid-0", 0, "AMD Instinct MI300X")
    assert (gpu.source, gpu.at_unix_ns) == (GpuSource.AMD_SMI, NOW_UNIX_NS)
    assert gpu.processes == frozenset({42})
    assert gpu.values == {
        "dram_bandwidth_ratio": 0.4,
        "dram_bandwidth_bytes_per_s": pytest.approx(0.4 * 5.3e12),
        "sm_active_ratio": 0.97,
        "memory_used_bytes": 150_000 * 2**20,
        "memory_total_bytes": 196_592 * 2**20,
        "power_w": 612.0,
        "energy_j_total": pytest.approx(30_600.0),
        "sm_clock_hz": 2_087_000_000,
        "sm_clock_max_hz": 2_100_000_000,
        "memory_clock_hz": 1_300_000_000,
        "throttle_reasons": "ppt_power",
    }
    assert {each.why for each in gpu.absent.values()} == {AbsenceReason.NOT_REPORTED}
    assert {"tensor_active_ratio", "nvlink_rx_bytes_per_s"} <= gpu.absent.keys()


def test_names_of_older_gpus_and_versions_are_read(smi: AmdSmi, amd: AmdSmiReader) -> None:
    """GPUs before MI300 report average power. ROCm 6.0 has another name for the energy counter."""
    smi.answers["amdsmi_get_power_info"] = {
        "current_socket_power": "N/A",
        "average_socket_power": 200,
    }
    smi.answers["amdsmi_get_energy_count"] = {"power": 1_000_000, "counter_resolution": 1.0}
    del smi.answers["amdsmi_get_violation_status"]
    gpu = only(amd)
    assert (gpu.values["power_w"], gpu.values["energy_j_total"]) == (200.0, 1.0)
    assert gpu.absent["throttle_reasons"].why is AbsenceReason.VERSION_MISMATCH


def test_a_value_that_is_not_applicable_is_unknown(smi: AmdSmi, amd: AmdSmiReader) -> None:
    """The library returns `N/A` for a value that the GPU does not have."""
    smi.answers["amdsmi_get_gpu_activity"] = {"gfx_activity": 250, "umc_activity": "N/A"}
    smi.answers["amdsmi_get_violation_status"] = {"active_ppt_pwr": "N/A"}
    gpu = only(amd)
    assert gpu.absent["dram_bandwidth_ratio"].why is AbsenceReason.NOT_SUPPORTED
    assert gpu.absent["dram_bandwidth_bytes_per_s"].why is AbsenceReason.NOT_SUPPORTED
    assert gpu.absent["sm_active_ratio"].why is AbsenceReason.IMPOSSIBLE
    assert gpu.absent["throttle_reasons"].why is AbsenceReason.NOT_SUPPORTED


def test_without_a_known_peak_the_share_is_reported(smi: AmdSmi, amd: AmdSmiReader) -> None:
    """Some drivers report a peak of zero."""
    smi.answers["amdsmi_get_gpu_vram_info"] = {"vram_max_bandwidth": 0}
    gpu = only(amd)
    assert gpu.values["dram_bandwidth_ratio"] == 0.4
    assert gpu.absent["dram_bandwidth_bytes_per_s"].why is AbsenceReason.NOT_SUPPORTED


@pytest.mark.parametrize("name", sorted(CODES))
def test_each_error_code_becomes_a_reason(smi: AmdSmi, amd: AmdSmiReader, name: str) -> None:
    expected = amd_smi._CODES.get(name, AbsenceReason.FAILED)
    for function in ("amdsmi_init", "amdsmi_get_processor_handles"):
        smi.failing = {function: CODES[name]}
        with pytest.raises(ReaderError) as caught:
            amd.read()
        assert (caught.value.absence.why, smi.open) == (expected, 0)
    smi.failing = {"amdsmi_get_power_info": CODES[name]}
    reading = amd.read()
    if expected in (AbsenceReason.LOST, AbsenceReason.NEEDS_RESET):
        assert [each.absence.why for each in reading.failures] == [expected]
    else:
        assert reading.gpus[0].absent["power_w"].why is expected
        assert reading.gpus[0].values["sm_active_ratio"] == 0.97


def test_a_lost_gpu_does_not_stop_others_and_is_found_again(
    smi: AmdSmi, amd: AmdSmiReader, clock: Clock
) -> None:
    """While a GPU is lost, the reader opens the library again every 30 s."""
    smi.gpus, smi.lost = 2, 0
    for _ in range(3):
        reading = amd.read()
        assert [gpu.gpu for gpu in reading.gpus] == ["uuid-1"]
        assert [each.absence.why for each in reading.failures] == [AbsenceReason.LOST]
    assert smi.calls["amdsmi_init"] == 1
    clock.s += REOPEN_S
    amd.read()
    smi.lost = None
    assert [gpu.gpu for gpu in amd.read().gpus] == ["uuid-0", "uuid-1"]
    assert smi.calls["amdsmi_init"] == 2


def test_no_gpu_is_a_reason(smi: AmdSmi, amd: AmdSmiReader) -> None:
    smi.gpus = 0
    with pytest.raises(ReaderError) as caught:
        amd.read()
    assert (caught.value.absence.why, smi.open) == (AbsenceReason.NO_GPU, 0)


def test_without_rocm_there_is_no_library(
    amd: AmdSmiReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(ReaderError) as caught:
        amd.read()
    assert caught.value.absence.why is AbsenceReason.NO_PACKAGE


def test_a_library_that_fails_on_import_counts_as_missing(
    amd: AmdSmiReader,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without libamd_smi.so, importing the package prints a message and raises a KeyError."""
    package = tmp_path / "amdsmi"
    package.mkdir()
    (package / "__init__.py").write_text("print('Unable to find')\n{}['libamd_smi.so']\n")
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ReaderError) as caught:
        amd.read()
    assert caught.value.absence.why is AbsenceReason.NO_LIBRARY
    assert capsys.readouterr().out == ""
