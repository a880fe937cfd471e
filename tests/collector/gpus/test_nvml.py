import builtins
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from collector.gpus.nvml import REOPEN_S, NvmlReader
from collector.gpus.nvml_errors import CODES
from collector.gpus.reader import (
    LOST_GPU,
    MEASURED,
    AbsenceReason,
    GpuReading,
    ReaderError,
    Reading,
)
from telemetry.gpus import GpuSource
from tests.collector.gpus.conftest import NOW_UNIX_NS, Clock
from tests.collector.gpus.driver import DRAM, GIB, H100, RESERVED, SM, Card, Driver, Slice

Install = Callable[..., Driver]
FIELD_OF = {
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_j_total"},
    "nvmlDeviceGetClockInfo": {"sm_clock_hz", "memory_clock_hz"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max_hz", "dram_bandwidth_bytes_per_s"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons"},
    "nvmlDeviceGetMemoryInfo_v2": {"memory_used_bytes", "memory_total_bytes"},
    "nvmlDeviceGetMemoryBusWidth": {"dram_bandwidth_bytes_per_s"},
}
RATES = {name for name in MEASURED if name.endswith(("_active_ratio", "_bytes_per_s"))} | {
    "dram_bandwidth_ratio"
}
EVERYTHING = set(MEASURED) - {"foreign_processes"}
ANY_CODE = sorted(CODES)
EACH_REASON = sorted(
    # Only for this code, the package tries the older name of a function.
    {"NVML_ERROR_FUNCTION_NOT_FOUND", *{why: name for name, why in CODES.items()}.values()}
)


def second(reader: NvmlReader, clock: Clock) -> Reading:
    reader.read()
    clock.s += 1
    return reader.read()


def only(reading: Reading) -> GpuReading:
    assert reading.failures == ()
    [gpu] = reading.gpus
    return gpu


def test_every_code_of_the_package_has_its_meaning() -> None:
    """If NVIDIA adds a code, add it to `CODES`."""
    assert set(CODES) == {name for name in dir(pynvml) if name.startswith("NVML_ERROR_")}


def test_a_hopper_is_read_in_full(install: Install, reader: NvmlReader, clock: Clock) -> None:
    """Bandwidth is a share of the peak of 3.35 TB/s, which follows from memory width and clock."""
    install(Card(processes=[42, 43], reasons=0x4 | 0x20))
    gpu = only(second(reader, clock))
    assert (gpu.gpu, gpu.index, gpu.model_name) == ("GPU-1", 0, H100)
    assert (gpu.source, gpu.at_unix_ns) == (GpuSource.NVML, NOW_UNIX_NS)
    assert gpu.processes == frozenset({42, 43})
    assert not gpu.absent
    assert gpu.values == {
        "power_w": 512.5,
        "energy_j_total": 7_000_000.5,
        "sm_clock_hz": 1_755_000_000,
        "sm_clock_max_hz": 1_980_000_000,
        "memory_clock_hz": 2_619_000_000,
        "throttle_reasons": "sw_power_cap,sw_thermal_slowdown",
        "memory_used_bytes": 70 * GIB,
        "memory_total_bytes": 80 * GIB,
        "dram_bandwidth_ratio": 0.625,
        "dram_bandwidth_bytes_per_s": pytest.approx(0.625 * 3.352e12, rel=1e-3),
        "sm_active_ratio": 0.9,
        "tensor_active_ratio": 0.25,
        "pcie_tx_bytes_per_s": 3 * 2**20,
        "pcie_rx_bytes_per_s": 4 * 2**20,
        "nvlink_rx_bytes_per_s": 100 * 2**20,
        "nvlink_tx_bytes_per_s": 200 * 2**20,
    }


@pytest.mark.parametrize(
    ("megahertz", "bits", "named"),
    [(1593, 5120, 2.04e12), (3201, 6144, 4.9e12), (6251, 192, 300e9), (9001, 384, 864e9)],
    ids=["A100 80GB", "H200", "L4", "L40S"],
)
def test_the_peak_agrees_with_nvidias_data_sheets(
    install: Install, reader: NvmlReader, clock: Clock, megahertz: int, bits: int, named: float
) -> None:
    driver = install(Card(bus_bits=bits, gpm={DRAM: 100.0}))

    def highest(_of: Any, _kind: Any, found: Any) -> None:
        found._obj.value = megahertz

    driver.do_nvmlDeviceGetMaxClockInfo = highest  # type: ignore[method-assign, assignment]
    gpu = only(second(reader, clock))
    assert gpu.values["dram_bandwidth_bytes_per_s"] == pytest.approx(named, rel=0.02)


def test_the_first_reading_has_no_rate(install: Install, reader: NvmlReader) -> None:
    """A rate is computed from two readings."""
    install(Card())
    gpu = only(reader.read())
    assert set(gpu.absent) == RATES
    assert {each.why for each in gpu.absent.values()} == {AbsenceReason.FIRST_LOOK}
    assert gpu.values["power_w"] == 512.5


def test_after_a_pause_the_next_reading_has_no_rate(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """An average over a minute is not reported as the rate of one second."""
    install(Card())
    second(reader, clock)
    clock.s += 60
    late = only(reader.read())
    assert late.absent["dram_bandwidth_ratio"].why is AbsenceReason.FIRST_LOOK
    assert "60 s ago" in late.absent["dram_bandwidth_ratio"].detail
    clock.s += 1
    assert "dram_bandwidth_ratio" in only(reader.read()).values


def test_a_reading_that_comes_too_soon_keeps_the_previous_one(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """The driver updates its counters only ten times per second."""
    install(Card())
    reader.read()
    clock.s += 0.05
    assert only(reader.read()).absent["sm_active_ratio"].why is AbsenceReason.FIRST_LOOK
    clock.s += 0.06
    assert "sm_active_ratio" in only(reader.read()).values


def test_two_buffers_a_gpu_are_held_and_freed(install: Install, clock: Clock) -> None:
    driver = install(Card(), Card(uuid="GPU-2"))
    reader = NvmlReader(clock=clock)
    for _ in range(5):
        reader.read()
        clock.s += 1
    assert len(driver.buffers) == 4
    reader.close()
    assert (driver.buffers, driver.open) == (set(), 0)


def test_an_older_gpu_has_all_but_rates(install: Install, reader: NvmlReader, clock: Clock) -> None:
    """The share of time with memory accesses is not bandwidth."""
    driver = install(Card(supports_gpm=False))
    gpu = only(second(reader, clock))
    assert set(gpu.absent) == RATES
    assert {str(each) for each in gpu.absent.values()} == {
        "not_supported (older than Hopper; a dcgm-exporter may report it)"
    }
    assert "nvmlDeviceGetUtilizationRates" not in driver.calls


def test_a_failing_metric_affects_only_itself(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    install(
        Card(
            gpm={DRAM: 62.5, SM: 250.0, 5: float("nan"), 20: -1.0, 21: 2.0},
            gpm_codes={DRAM: pynvml.NVML_ERROR_NO_PERMISSION},
        )
    )
    gpu = only(second(reader, clock))
    assert gpu.values["pcie_rx_bytes_per_s"] == 2 * 2**20
    assert {name: str(each.why) for name, each in gpu.absent.items()} == {
        "dram_bandwidth_ratio": "no_permission",
        "dram_bandwidth_bytes_per_s": "no_permission",
        "sm_active_ratio": "impossible",
        "tensor_active_ratio": "impossible",
        "pcie_tx_bytes_per_s": "impossible",
        "nvlink_rx_bytes_per_s": "not_supported",
        "nvlink_tx_bytes_per_s": "not_supported",
    }


def test_a_share_slightly_above_one_is_one(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """The clocks of the driver and of the reader differ slightly."""
    install(Card(gpm={DRAM: 100.4}))
    assert only(second(reader, clock)).values["dram_bandwidth_ratio"] == 1.0


@pytest.mark.parametrize("name", ANY_CODE)
@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_each_error_at_the_start_becomes_a_reason(
    install: Install, reader: NvmlReader, function: str, name: str
) -> None:
    driver = install(Card())
    driver.failing[function] = getattr(pynvml, name)
    with pytest.raises(ReaderError) as caught:
        reader.read()
    assert (caught.value.absence.why, driver.open) == (CODES[name], 0)
    assert caught.value.absence.detail.startswith("NVML: ")
    driver.failing.clear()
    assert only(reader.read()).gpu == "GPU-1"


@pytest.mark.parametrize("name", EACH_REASON)
def test_a_failing_gpu_affects_only_itself(
    install: Install, reader: NvmlReader, clock: Clock, name: str
) -> None:
    install(
        Card(failing={"nvmlDeviceGetHandleByIndex_v2": getattr(pynvml, name)}), Card(uuid="GPU-2")
    )
    reading = second(reader, clock)
    [other] = reading.gpus
    assert (other.gpu, other.index, set(other.values)) == ("GPU-2", 1, EVERYTHING)
    [failure] = reading.failures
    assert (failure.what, failure.absence.why) == ("GPU 0", CODES[name])


@pytest.mark.parametrize("name", EACH_REASON)
@pytest.mark.parametrize("function", sorted(FIELD_OF))
def test_a_measurement_that_fails_is_absent_with_the_reason(
    install: Install, reader: NvmlReader, clock: Clock, function: str, name: str
) -> None:
    install(Card(failing={function: getattr(pynvml, name)}))
    reading = second(reader, clock)
    if CODES[name] in LOST_GPU:
        assert [each.absence.why for each in reading.failures] == [CODES[name]]
        return
    gpu = only(reading)
    # The fake driver also has the older names of these functions.
    older = "EventReasons" in function or "MemoryInfo" in function
    renamed = name == "NVML_ERROR_FUNCTION_NOT_FOUND" and older
    missing = set() if renamed else FIELD_OF[function]
    assert {field: each.why for field, each in gpu.absent.items()} == dict.fromkeys(
        missing, CODES[name]
    )
    assert set(gpu.values) == EVERYTHING - missing


@pytest.mark.parametrize("name", EACH_REASON)
@pytest.mark.parametrize(
    "function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmSampleAlloc"]
)
def test_counters_that_fail_leave_the_rest(
    install: Install, reader: NvmlReader, clock: Clock, function: str, name: str
) -> None:
    driver = install(Card())
    driver.failing[function] = getattr(pynvml, name)
    reading = second(reader, clock)
    if CODES[name] in LOST_GPU:
        assert [each.absence.why for each in reading.failures] == [CODES[name]]
    else:
        gpu = only(reading)
        assert {field: each.why for field, each in gpu.absent.items()} == dict.fromkeys(
            RATES, CODES[name]
        )
    assert driver.buffers == set()


def test_hidden_processes_are_unknown(install: Install, reader: NvmlReader) -> None:
    driver = install(Card())
    assert only(reader.read()).processes == frozenset()
    driver.failing["nvmlDeviceGetComputeRunningProcesses_v3"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert only(reader.read()).processes is None


def test_a_lost_gpu_does_not_stop_others_and_is_found_again(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """The reader opens NVML again every 30 s to find a lost GPU.

    The other GPUs then have one reading without rates.
    """
    lost, other = Card(), Card(uuid="GPU-2")
    driver = install(lost, other)
    second(reader, clock)
    lost.failing["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_GPU_IS_LOST
    clock.s += 1
    reading = reader.read()
    assert [gpu.gpu for gpu in reading.gpus] == ["GPU-2"]
    assert not reading.gpus[0].absent
    assert [each.absence.why for each in reading.failures] == [AbsenceReason.LOST]
    assert len(driver.buffers) == 2
    lost.failing.clear()
    begun = driver.calls["nvmlInitWithFlags"]
    clock.s += REOPEN_S
    back = reader.read()
    assert driver.calls["nvmlInitWithFlags"] == begun + 1
    assert [gpu.gpu for gpu in back.gpus] == ["GPU-1", "GPU-2"]
    clock.s += REOPEN_S
    reader.read()
    assert driver.calls["nvmlInitWithFlags"] == begun + 1


def test_a_forbidden_gpu_does_not_cause_a_new_start_of_nvml(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """The GPU belongs to another container, so opening NVML again would not help."""
    forbidden = {"nvmlDeviceGetHandleByIndex_v2": pynvml.NVML_ERROR_NO_PERMISSION}
    driver = install(Card(failing=forbidden), Card(uuid="GPU-2"))
    for _ in range(4):
        reader.read()
        clock.s += REOPEN_S
    assert driver.calls["nvmlInitWithFlags"] == 1


def test_each_slice_is_read_by_itself(install: Install, reader: NvmlReader, clock: Clock) -> None:
    """Power and energy are known for the card only. An empty slot is no failure."""
    install(Card(slices=[Slice("MIG-a", 3, processes=[7]), None, Slice("MIG-b", 5, {SM: 10.0})]))
    reading = second(reader, clock)
    assert reading.failures == ()
    card, first, last = reading.gpus
    assert (card.gpu, card.index, first.gpu, first.index) == ("GPU-1", 0, "MIG-a", None)
    assert card.values["power_w"] == 512.5
    assert card.absent["memory_used_bytes"].why is AbsenceReason.SLICED
    assert card.processes is None
    assert first.values["memory_total_bytes"] == 10 * GIB
    assert first.values["dram_bandwidth_ratio"] == 0.4
    assert first.values["sm_clock_hz"] == 1_755_000_000
    assert first.processes == frozenset({7})
    assert {first.absent[name].why for name in ("power_w", "energy_j_total")} == {
        AbsenceReason.SLICED
    }
    assert first.absent["dram_bandwidth_bytes_per_s"].why is AbsenceReason.SLICED
    assert last.values["sm_active_ratio"] == 0.1
    assert last.absent["dram_bandwidth_ratio"].why is AbsenceReason.NOT_SUPPORTED


@pytest.mark.parametrize("name", EACH_REASON)
def test_a_gpu_without_a_mig_mode_is_whole(
    install: Install, reader: NvmlReader, clock: Clock, name: str
) -> None:
    """GPUs before Ampere have no MIG mode."""
    install(Card(failing={"nvmlDeviceGetMigMode": getattr(pynvml, name)}))
    reading = second(reader, clock)
    if CODES[name] not in LOST_GPU:
        assert set(only(reading).values) == EVERYTHING


def test_missing_functions_of_an_older_driver_are_unknown(
    install: Install, reader: NvmlReader, clock: Clock
) -> None:
    """An older driver lacks functions, and has another name for throttle reasons."""
    driver = install(Card(reasons=0x8))
    driver.old = {
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlGpmQueryDeviceSupport",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    }
    gpu = only(second(reader, clock))
    assert gpu.values["throttle_reasons"] == "hw_slowdown"
    assert gpu.values["memory_used_bytes"] == 70 * GIB + RESERVED
    assert {each.why for each in gpu.absent.values()} == {AbsenceReason.OLD_DRIVER}
    assert (set(gpu.absent), gpu.processes) == (RATES, None)


def test_without_a_driver_there_is_no_gpu(
    reader: NvmlReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(_name: str) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", nowhere)
    with pytest.raises(ReaderError) as caught:
        reader.read()
    assert caught.value.absence.why is AbsenceReason.NO_LIBRARY


def test_a_driver_without_a_gpu_is_a_reason(install: Install, reader: NvmlReader) -> None:
    driver = install()
    with pytest.raises(ReaderError) as caught:
        reader.read()
    assert (caught.value.absence.why, driver.open) == (AbsenceReason.NO_GPU, 0)


def test_a_missing_package_is_named_with_its_extra(
    reader: NvmlReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package has different names for pip and for import."""
    really = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pynvml":
            raise ImportError(name)
        return really(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ReaderError, match=r"no_package \(pip install .*\[gpu\]"):
        reader.read()


def test_a_new_code_of_nvidia_is_named_by_its_number(install: Install, reader: NvmlReader) -> None:
    driver = install(Card())
    driver.failing["nvmlInitWithFlags"] = 77
    with pytest.raises(ReaderError) as caught:
        reader.read()
    assert str(caught.value) == "failed (NVML error 77)"


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId"])
def test_a_failing_slice_affects_only_itself(
    install: Install, reader: NvmlReader, clock: Clock, function: str
) -> None:
    card = Card(slices=[Slice("MIG-a", 3), Slice("MIG-b", 5)])
    driver = install(card)
    do = getattr(driver, f"do_{function}")

    def failing(of: Any, *rest: Any) -> Any:
        assert card.slices is not None
        return pynvml.NVML_ERROR_UNKNOWN if of is card.slices[0] else do(of, *rest)

    setattr(driver, f"do_{function}", failing)
    reading = second(reader, clock)
    assert [gpu.gpu for gpu in reading.gpus] == ["GPU-1", "MIG-b"]
    [failure] = reading.failures
    assert (failure.what, failure.absence.why) == ("GPU 0 MIG slice 0", AbsenceReason.FAILED)
