"""Peaks of your own, before those of the table: a file in the form of `peaks.toml`.

    [device."NVIDIA H20"]
    bytes_per_s = 4.0e12
    flops_per_s = { bf16 = 148e12, fp8 = 296e12 }

A device that the table has may leave out what stays.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from roofline.peaks import PeaksError, device_named

ENVIRONMENT_KEY: Final = "TAILSPAN_PEAKS"


def peaks_in_force(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """What the file that the environment names gives, by device; nothing where it names none.

    Raises:
        PeaksError: it cannot be read, or gives what is none; with the file.
    """
    named = environment.get(ENVIRONMENT_KEY)
    return load_peaks(Path(named)) if named else {}


def load_peaks(path: Path) -> Mapping[str, Any]:
    """What a file gives, by device. Errors as above."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PeaksError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # of TOML, and of text
        raise PeaksError(f"{path}: {error}") from error
    devices = given.pop("device", {})
    if given or not isinstance(devices, dict) or not devices:
        raise PeaksError(f'{path}: must have tables [device."NAME"], and nothing else')
    for name in devices:
        try:
            device_named(name, devices)
        except PeaksError as error:
            raise PeaksError(f"{path}: {error}") from error
    return devices
