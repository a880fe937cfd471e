"""Find the peak bandwidth and FLOP/s of a GPU or MIG slice by its name. Pure, except that the
module reads `peaks.toml`."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

MATHS: Final = ("fp32", "bf16", "fp16", "int8", "fp8", "fp4")
"""The number formats for which peaks are defined. A peak is for the product of dense matrices."""

_SLICE = re.compile(r"^(?P<whole>.*?) MIG (?P<compute>\d)g\.(?P<memory>\d+)gb", re.IGNORECASE)
"""The driver's name of a MIG slice. "MIG 3g.40gb" has three sevenths of the compute units and 40
GB."""


class PeaksError(ValueError):
    """The user's configuration contains invalid peaks of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The peaks of one GPU according to its manufacturer."""

    name: str
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """Maps each supported number format to the FLOP/s of dense matrix products."""
    memory_bytes: float | None = None
    source: str | None = None
    published: str | None = None
    """Year and month of the source."""
    checked: str | None = None
    """Address of a public copy of the source, if there is one."""

    def flops_in(self, math: str, otherwise: str) -> float | None:
        """The FLOP/s in the number format `math`.

        If the device does not support this format, the GPU computes in `otherwise`.
        """
        return self.flops_per_s.get(math, self.flops_per_s.get(otherwise))


def device_named(name: str | None, given: Mapping[str, Any] | None = None) -> Device | None:
    """The peaks of a device, or None if it is unknown.

    Args:
        name: the name that NVML, vLLM or AMD SMI reports, such as "NVIDIA H100 80GB HBM3".
        given: peaks that override the table: `{"NVIDIA H20": {"bytes_per_s": 4.0e12, "flops_per_s":
            {"bf16": 148e12}}}`.

    Raises:
        PeaksError: a given value is invalid.
    """
    if not name:
        return None
    devices = _by_name(given)
    found = devices.get(_normalised_name(name))
    if found is not None:
        return found
    sliced = _SLICE.match(name)
    whole = devices.get(_normalised_name(sliced["whole"])) if sliced else None
    if sliced is None or whole is None or whole.memory_bytes is None:
        return None
    return _part(name, whole, int(sliced["compute"]), float(sliced["memory"]))


def known_devices(given: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The names of the known devices, for an error message."""
    return tuple(sorted({device.name for device in _by_name(given).values()}))


def _part(name: str, whole: Device, sevenths: int, gigabytes: float) -> Device:
    """The peaks of a MIG slice.

    A slice has a multiple of 1/8 of the GPU's memory and a multiple of 1/7 of its multiprocessors.

    Source: NVIDIA Multi-Instance GPU User Guide, "MIG Device Profiles".
    """
    memory_bytes = whole.memory_bytes or 0.0
    eighths = min(8, max(1, round(8 * gigabytes * 1e9 / memory_bytes)))
    return replace(
        whole,
        name=name,
        bytes_per_s=whole.bytes_per_s * eighths / 8,
        flops_per_s={math: peak * sevenths / 7 for math, peak in whole.flops_per_s.items()},
        memory_bytes=memory_bytes * eighths / 8,
    )


def _normalised_name(name: str) -> str:
    """The lower-case words of a device name, without the manufacturer."""
    words = re.split(r"[\s_/-]+", name.casefold())
    return " ".join(word for word in words if word not in ("nvidia", "amd", "tesla", "geforce"))


def _by_name(given: Mapping[str, Any] | None) -> dict[str, Device]:
    devices = dict(_table())
    for name, values in (given or {}).items():
        known = devices.get(_normalised_name(name))
        if not isinstance(values, Mapping):
            raise PeaksError(f"{name}: {values!r}; allowed: bytes_per_s and flops_per_s")
        devices[_normalised_name(name)] = _device(name, values, known)
    return devices


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Device]:
    text = files("roofline").joinpath("peaks.toml").read_text("utf-8")
    devices: dict[str, Device] = {}
    for name, values in tomllib.loads(text)["device"].items():
        device = _device(name, values, None)
        for alias in (name, *values.get("also", ())):
            devices[_normalised_name(alias)] = device
    return devices


def _device(name: str, values: Mapping[str, Any], known: Device | None) -> Device:
    allowed = {
        *("bytes_per_s", "flops_per_s", "memory_bytes"),
        *("source", "published", "checked", "also"),
    }
    unknown = sorted(set(values) - allowed)
    if unknown:
        raise PeaksError(f"{name}.{unknown[0]}: unknown; allowed: {', '.join(sorted(allowed))}")
    flops = values.get("flops_per_s", {})
    if not isinstance(flops, Mapping) or set(flops) - set(MATHS):
        raise PeaksError(f"{name}.flops_per_s: {flops!r}; allowed: any of {', '.join(MATHS)}")
    bandwidth = values.get("bytes_per_s", known.bytes_per_s if known else None)
    if bandwidth is None:
        raise PeaksError(
            f"{name}.bytes_per_s: is missing, and peaks.toml does not contain the device"
        )
    peaks = {f"flops_per_s.{math}": peak for math, peak in flops.items()}
    memory = values.get("memory_bytes", known.memory_bytes if known else None)
    if memory is not None:
        peaks["memory_bytes"] = memory
    for key, value in {"bytes_per_s": bandwidth, **peaks}.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e19:
            raise PeaksError(f"{name}.{key}: {value!r}; allowed: a number above 0")
    return Device(
        name=name,
        bytes_per_s=float(bandwidth),
        flops_per_s={
            **(known.flops_per_s if known else {}),
            **{math: float(peak) for math, peak in flops.items()},
        },
        memory_bytes=None if memory is None else float(memory),
        source=values.get("source", known.source if known else None),
        published=values.get("published", known.published if known else None),
        checked=values.get("checked", known.checked if known else None),
    )
