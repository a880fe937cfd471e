"""What engines cost and what GPUs can do, from files of one's own: or what to correct in them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # a command waits for its imports
    from cost.prices import PriceList


def prices_of(path: Path | None) -> "PriceList":
    """Those of `--prices`, else of the file that the environment names, else list prices.

    Raises:
        click.UsageError: the file cannot be read, or says what cannot be.
    """
    from cost.errors import PriceError
    from cost.pricefile import prices_in_force

    try:
        return prices_in_force(path, os.environ)
    except PriceError as error:
        raise click.UsageError(f"--prices: {error}") from error


def own_peaks() -> Mapping[str, Any]:
    """Those of the file that the environment names. Errors as above."""
    from roofline.peakfile import ENVIRONMENT_KEY, peaks_in_force
    from roofline.peaks import PeaksError

    try:
        return peaks_in_force(os.environ)
    except PeaksError as error:
        raise click.UsageError(f"{ENVIRONMENT_KEY}: {error}") from error
