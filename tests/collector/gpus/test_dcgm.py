import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.gpus.dcgm import DcgmReader
from collector.gpus.dcgm_series import NAMES, gpus_of
from collector.gpus.reader import AbsenceReason, GpuReader, GpuReading, ReaderError, Reading
from collector.scrape.credentials import TargetCredentials
from collector.scrape.exposition import samples_of
from collector.scrape.failure_reasons import DiscoveryError
from collector.scrape.fetch import Clients
from collector.scrape.targets import Discovery, Target, place
from telemetry.gpus import GpuSource
from tests.collector.gpus.conftest import NOW_UNIX_NS
from tests.collector.scrape.conftest import Stranger, responding
from tests.collector.scrape.test_credentials import TOKEN, Issue, guarded

# The output of dcgm-exporter 4 for an A100 in Kubernetes.
ABOUT = (
    'gpu="1",UUID="GPU-a",pci_bus_id="00000000:07:00.0",device="nvidia1",'
    'modelName="NVIDIA A100-SXM4-80GB",Hostname="gpu-host",DCGM_FI_DRIVER_VERSION="580.95.05",'
    'container="vllm",namespace="serving",pod="chat-0",pod_uid=""'
)
REPORTED = {
    "DCGM_FI_DEV_SM_CLOCK": "1410",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "1410",
    "DCGM_FI_DEV_MEM_CLOCK": "1593",
    "DCGM_FI_DEV_GPU_TEMP": "61",
    "DCGM_FI_DEV_POWER_USAGE": "301.250000",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "7000000500",
    "DCGM_FI_DEV_GPU_UTIL": "99",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "88",
    "DCGM_FI_DEV_FB_FREE": "11000",
    "DCGM_FI_DEV_FB_USED": "70000",
    "DCGM_FI_DEV_FB_RESERVED": "920",
    "DCGM_FI_PROF_SM_ACTIVE": "0.910000",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.240000",
    "DCGM_FI_PROF_DRAM_ACTIVE": "0.690789",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "33011804",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "97863601",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "8000000000",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "12000000000",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "4",
}


def exposition(series: dict[str, str], about: str = ABOUT) -> bytes:
    return "".join(
        f"# HELP {name} …\n# TYPE {name} gauge\n{name}{{{about}}} {value}\n"
        for name, value in series.items()
    ).encode()


def gpus(body: bytes) -> tuple[GpuReading, ...]:
    return gpus_of(samples_of(body, NAMES), NOW_UNIX_NS)


def test_an_exporters_gpu_is_read_in_base_units() -> None:
    """The share of time with memory copies is not bandwidth, and DCGM reports no peak."""
    [gpu] = gpus(exposition(REPORTED))
    assert (gpu.gpu, gpu.index, gpu.source) == ("GPU-a", 1, GpuSource.DCGM)
    assert (gpu.model_name, gpu.at_unix_ns) == ("NVIDIA A100-SXM4-80GB", NOW_UNIX_NS)
    assert gpu.processes is None
    assert gpu.labels["pod"] == "chat-0"
    assert gpu.labels["Hostname"] == "gpu-host"
    assert gpu.values == {
        "sm_clock_hz": 1_410_000_000,
        "sm_clock_max_hz": 1_410_000_000,
        "memory_clock_hz": 1_593_000_000,
        "power_w": 301.25,
        "energy_j_total": 7_000_000.5,
        "memory_used_bytes": 70_000 * 2**20,
        "memory_total_bytes": 81_920 * 2**20,
        "sm_active_ratio": 0.91,
        "tensor_active_ratio": 0.24,
        "dram_bandwidth_ratio": 0.690789,
        "pcie_tx_bytes_per_s": 33_011_804.0,
        "pcie_rx_bytes_per_s": 97_863_601.0,
        "nvlink_tx_bytes_per_s": 8e9,
        "nvlink_rx_bytes_per_s": 12e9,
        "throttle_reasons": "sw_power_cap",
    }
    assert set(gpu.absent) == {"dram_bandwidth_bytes_per_s"}


def test_counters_that_are_not_asked_for_are_named() -> None:
    """In its default configuration, dcgm-exporter reports no bandwidth."""
    [gpu] = gpus(exposition({"DCGM_FI_DEV_POWER_USAGE": "70"}))
    assert gpu.values == {"power_w": 70.0}
    assert {each.why for each in gpu.absent.values()} == {AbsenceReason.NOT_REPORTED}
    assert "DCGM_FI_PROF_DRAM_ACTIVE" in gpu.absent["dram_bandwidth_ratio"].detail


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("DCGM_FI_PROF_DRAM_ACTIVE", "69", "dram_bandwidth_ratio"),
        ("DCGM_FI_DEV_POWER_USAGE", "-1", "power_w"),
        ("DCGM_FI_DEV_SM_CLOCK", "+Inf", "sm_clock_hz"),
        ("DCGM_FI_DEV_FB_USED", "-5", "memory_used_bytes"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "-1", "energy_j_total"),
    ],
)
def test_an_impossible_value_is_unknown(name: str, value: str, field: str) -> None:
    [gpu] = gpus(exposition({name: value}))
    assert field not in gpu.values
    assert gpu.absent[field].why is AbsenceReason.IMPOSSIBLE


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "-1", "1e308", "-1e308", "1e19", "NaN"])
def test_no_value_of_any_series_ends_the_reading(value: str) -> None:
    labels = f'gpu="{"9" * 5_000}",UUID="GPU-1"'
    body = "".join(f"{name}{{{labels}}} {value}\n" for name in sorted(NAMES))
    gpus = gpus_of(samples_of(body.encode(), NAMES), 1)
    assert all(gpu.index is None for gpu in gpus)


def test_not_a_number_is_unknown() -> None:
    assert gpus(exposition({"DCGM_FI_DEV_POWER_USAGE": "NaN"})) == ()


def test_slices_are_separate_and_have_no_power() -> None:
    """An exporter repeats the card's power for each slice, so a sum would be too high."""
    slices = b"".join(
        exposition(REPORTED, f'{ABOUT},GPU_I_PROFILE="1g.10gb",GPU_I_ID="{number}"')
        for number in (3, 5)
    )
    first, last = gpus(slices)
    assert (first.gpu, last.gpu, first.index) == ("GPU-a/3", "GPU-a/5", None)
    assert first.values["dram_bandwidth_ratio"] == 0.690789
    assert not {"power_w", "energy_j_total"} & first.values.keys()
    assert first.absent["power_w"].why is AbsenceReason.SLICED


@pytest.mark.parametrize(
    "about",
    [
        'UUID="GPU-a",pod="dcgm-exporter-x",exported_pod="chat-0"',
        'UUID="GPU-a",pod_name="chat-0",pod_namespace="serving",container_name="vllm"',
        'uuid="GPU-a",pod="chat-0"',
    ],
    ids=["through a Prometheus", "old namespace", "lower case"],
)
def test_labels_have_alternative_names(about: str) -> None:
    [gpu] = gpus(exposition({"DCGM_FI_DEV_POWER_USAGE": "70"}, about))
    assert (gpu.gpu, gpu.labels["pod"]) == ("GPU-a", "chat-0")


def test_gpus_without_a_uuid_have_different_names_on_each_host() -> None:
    """GPUs with the same name would belong to the same replica."""
    found = [
        gpus(exposition({"DCGM_FI_DEV_POWER_USAGE": "70"}, about))
        for about in ('gpu="0",Hostname="a"', 'gpu="0",Hostname="b"', 'gpu="0"')
    ]
    assert [gpu.gpu for (gpu,) in found] == ["a/0", "b/0", "0"]
    assert {gpu.index for (gpu,) in found} == {0}


class Found:
    name = "found"

    def __init__(self, *urls: str) -> None:
        self.urls = urls

    async def targets(self) -> Sequence[Target]:
        if not self.urls:
            raise DiscoveryError("found: no such name")
        return [Target(url, url.split("/")[2]) for url in self.urls]


async def _read(*urls: str) -> Reading:
    return await _ask(Found(*urls))


async def _ask(discovery: Discovery) -> Reading:
    clients = Clients()
    reader: GpuReader = DcgmReader(discovery, clients, lambda: NOW_UNIX_NS)
    try:
        return await reader.read()
    finally:
        await clients.aclose()


def test_a_failing_exporter_does_not_affect_the_others(stranger: Stranger) -> None:
    async def ask() -> Reading:
        async with (
            stranger(responding(exposition(REPORTED))) as good,
            stranger(responding(b"", "500 no")) as bad,
        ):
            reading = await _read(good, bad)
            assert [each.what for each in reading.failures] == [bad]
            return reading

    reading = asyncio.run(ask())
    assert [gpu.gpu for gpu in reading.gpus] == ["GPU-a"]
    assert reading.failures[0].absence.why is AbsenceReason.NOT_UNDERSTOOD


@pytest.mark.parametrize(
    "body",
    [b"vllm:num_requests_running 1\n", b"DCGM_FI_DEV_POWER_USAGE{", b"DCGM_FI_DEV_POWER_USAGE 1\n"],
    ids=["of an engine", "malformed", "of no GPU"],
)
def test_another_server_is_no_exporter(stranger: Stranger, body: bytes) -> None:
    async def ask() -> None:
        async with stranger(responding(body)) as url:
            with pytest.raises(ReaderError) as series:
                await _read(url)
            assert series.value.absence.why is AbsenceReason.NOT_UNDERSTOOD
            assert url in series.value.absence.detail

    asyncio.run(ask())


@pytest.mark.parametrize("urls", [(), ("http://127.0.0.1:1/metrics",)], ids=["name", "port"])
def test_an_unreachable_exporter_is_reported(urls: Any) -> None:
    with pytest.raises(ReaderError) as series:
        asyncio.run(_read(*urls))
    assert series.value.absence.why is AbsenceReason.UNREACHABLE


def test_an_exporter_with_tls_gets_its_token(ca: Path, issue: Issue, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    good = TargetCredentials(token_file=tmp_path / "token", ca_file=ca)

    async def ask() -> None:
        async with guarded(TOKEN, issue(), body_sent=exposition(REPORTED)) as port:
            url = f"https://127.0.0.1:{port}"
            reading = await _ask(place(url, good))
            assert [gpu.gpu for gpu in reading.gpus] == ["GPU-a"]
            for access, why in (
                (TargetCredentials(ca_file=ca), "unauthorised: 401"),
                (replace(good, ca_file=None), "tls: "),
                (replace(good, token_file=tmp_path / "gone"), "no_token: "),
            ):
                with pytest.raises(ReaderError, match=why) as series:
                    await _ask(place(url, access))
                assert series.value.absence.why is AbsenceReason.SHUT
                assert TOKEN not in str(series.value)

    asyncio.run(ask())
