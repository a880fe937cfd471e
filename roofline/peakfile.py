"""Read the peaks of devices from a user's file.

The file overrides the values of `peaks.toml`. README.md describes the format.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from roofline.peaks import PeaksError, device_named

ENVIRONMENT_KEY: Final = "TAILSPAN_PEAKS"


def peaks_in_force(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return each device's peaks from the file in TAILSPAN_PEAKS.

    The result is empty if the variable is not set.

    Raises:
        PeaksError: the file cannot be read, or a value is invalid.
    """
    named = environment.get(ENVIRONMENT_KEY)
    return load_peaks(Path(named)) if named else {}


def load_peaks(path: Path) -> Mapping[str, Any]:
    """Return each device's peaks from a file."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PeaksError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not text
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
