from pathlib import Path

import pytest

from roofline.peakfile import load_peaks, peaks_in_force
from roofline.peaks import PeaksError, device_named, known_devices


def test_a_file_adds_devices_and_changes_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(
        '[device."NVIDIA H20"]\nbytes_per_s = 4.0e12\nflops_per_s = { bf16 = 148e12 }\n'
        '[device."NVIDIA B200"]\nbytes_per_s = 7.7e12\n'
    )
    given = peaks_in_force({"TAILSPAN_PEAKS": str(path)})
    new, changed = device_named("NVIDIA H20", given), device_named("NVIDIA B200", given)
    assert new is not None
    assert changed is not None
    assert (new.bytes_per_s, new.flops_per_s) == (4.0e12, {"bf16": 148e12})
    assert (changed.bytes_per_s, changed.flops_per_s["fp8"]) == (7.7e12, 4500e12)
    assert "NVIDIA H20" in known_devices(given)
    assert device_named("NVIDIA H20") is None
    assert peaks_in_force({}) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes_per_s = 1", "must have tables"),
        ("", "must have tables"),
        ("[device", "peaks.toml: "),
        ('[device."X"]\nspeed = 1', "X.speed: unknown; allowed: "),
    ],
)
def test_an_invalid_peak_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(text)
    with pytest.raises(PeaksError, match=f"^{path}: ") as refused:
        load_peaks(path)
    assert expected in str(refused.value)
    with pytest.raises(PeaksError, match="nowhere: cannot be read: No such file"):
        load_peaks(tmp_path / "nowhere")


def test_the_shipped_peak_file_is_valid() -> None:
    assert load_peaks(Path(__file__).parents[2] / "roofline" / "peaks.toml")
