from typing import Any

import pytest

from roofline.peaks import PeaksError, device_named, known_devices


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300"),
        ("NVIDIA Tesla T4", "Tesla T4"),
        ("GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("AMD Instinct MI250X/MI250", "AMD Instinct MI250X"),
        ("AMD_Instinct_MI300X", "AMD Instinct MI300X"),
    ],
)
def test_driver_names_identify_devices(name: str, device: str) -> None:
    found = device_named(name)
    assert found is not None
    assert found.name == device


@pytest.mark.parametrize("name", [None, "", "cpu", "NVIDIA A10G", "NVIDIA H100", "NVIDIA L40"])
def test_an_unknown_device_has_no_guessed_peak(name: str | None) -> None:
    """An A10G is not an A10, and there are several models of H100."""
    assert device_named(name) is None


def test_every_peak_has_its_source_and_its_date() -> None:
    for name in known_devices():
        device = device_named(name)
        assert device is not None
        assert device.source is not None
        assert device.published is not None
        assert len(device.published) == len("2024-03")
        peaks = device.flops_per_s
        assert 2e11 < device.bytes_per_s < 1e13
        assert 6e13 < peaks["fp16"] < 1e16
        assert peaks["fp32"] < peaks["fp16"] <= peaks.get("fp8", peaks["int8"])
        assert device.memory_bytes is not None
        assert 0.001 < device.memory_bytes / device.bytes_per_s < 0.1


def test_peaks_without_a_checked_source_are_listed() -> None:
    """If you find a source, add it to `checked`, and remove the name here."""
    unchecked = {
        name
        for name in known_devices()
        if (device := device_named(name)) is not None and device.checked is None
    }
    assert unchecked == {
        "NVIDIA A100 80GB PCIe",
        "NVIDIA H200 NVL",
        "NVIDIA A10",
        "NVIDIA GeForce RTX 4090",
        "AMD Instinct MI325X",
    }


def test_a_slice_has_sevenths_of_the_units_and_eighths_of_the_memory() -> None:
    """MIG 3g.40gb of an H100 has 1/2 of its bandwidth and 3/7 of its arithmetic."""
    part = device_named("NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert part is not None
    assert part.bytes_per_s == pytest.approx(3.35e12 / 2)
    assert part.flops_per_s["bf16"] == pytest.approx(989.5e12 * 3 / 7)
    one = device_named("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert one is not None
    assert one.bytes_per_s == pytest.approx(1.555e12 / 8)
    assert device_named("NVIDIA H20 MIG 1g.12gb") is None


def test_an_arithmetic_that_is_missing_is_done_in_another() -> None:
    """An A100 converts fp8 weights to 16 bits; a T4 has no bf16."""
    ampere, turing = device_named("NVIDIA A100-SXM4-80GB"), device_named("Tesla T4")
    assert ampere is not None
    assert turing is not None
    assert ampere.flops_in("fp8", "bf16") == 312e12
    assert turing.flops_in("bf16", "bf16") is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (3, "X: 3; allowed: bytes_per_s and flops_per_s"),
        ({}, "X.bytes_per_s: is missing"),
        ({"bytes_per_s": "fast"}, "X.bytes_per_s: 'fast'; allowed: a number above 0"),
        ({"bytes_per_s": 0}, "X.bytes_per_s: 0; allowed: a number above 0"),
        ({"bytes_per_s": True}, "X.bytes_per_s: True; allowed"),
        ({"bytes_per_s": 1e12, "speed": 1}, "X.speed: unknown; allowed: "),
        ({"bytes_per_s": 1e12, "flops_per_s": {"fp7": 1}}, "X.flops_per_s: "),
        ({"bytes_per_s": 1e12, "flops_per_s": {"bf16": -1}}, "X.flops_per_s.bf16: -1; allowed"),
    ],
)
def test_invalid_peaks_are_refused(values: Any, expected: str) -> None:
    with pytest.raises(PeaksError) as refused:
        device_named("X", {"X": values})
    assert str(refused.value).startswith(expected)
