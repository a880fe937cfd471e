"""Read the user's files of prices and of peaks of GPUs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # a slow import
    from cost.prices import PriceList


def prices_of(path: Path | None) -> "PriceList":
    """The prices in the file, in the environment's file, or the built-in list prices.

    Raises:
        click.UsageError: the file cannot be read, or contains an invalid value.
    """
    from cost.errors import PriceError
    from cost.pricefile import prices_in_force

    try:
        return prices_in_force(path, os.environ)
    except PriceError as error:
        raise click.UsageError(f"--prices: {error}") from error


def own_peaks() -> Mapping[str, Any]:
    """The peak FLOP/s and memory bandwidth of GPUs, from the file in TAILSPAN_PEAKS.

    Raises:
        click.UsageError: the file cannot be read, or contains an invalid value.
    """
    from roofline.peakfile import ENVIRONMENT_KEY, peaks_in_force
    from roofline.peaks import PeaksError

    try:
        return peaks_in_force(os.environ)
    except PeaksError as error:
        raise click.UsageError(f"{ENVIRONMENT_KEY}: {error}") from error
