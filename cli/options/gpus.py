"""Options for the GPUs to sample."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.options.durations import Duration
from cli.options.settings import setting, with_options
from cli.options.target_access import TargetAccess

if TYPE_CHECKING:  # a slow import
    from server.gpu_setup import GpuSetup

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ACCESS: Final = TargetAccess("--dcgm")

_OPTIONS = (
    setting(
        "--gpus",
        group="GPUs",
        type=click.Choice(["auto", "off"]),
        default="auto",
        show_default=True,
        help="Sample the GPUs of this machine each second: NVIDIA's through NVML, AMD's through AMD"
        " SMI.",
    ),
    setting(
        "--dcgm",
        group="GPUs",
        multiple=True,
        metavar="URL",
        help=(
            "Scrape this dcgm-exporter, for GPUs that are older than Hopper or on other machines:"
            " http://HOST:9400, or dns+http://NAME:9400. May be repeated."
        ),
    ),
    *_ACCESS.options("GPUs"),
    setting(
        "--dcgm-every",
        group="GPUs",
        # half of GAP_S (telemetry/billing_data.py), because energy is not counted over longer gaps
        type=Duration("1s", "30s"),
        default="5s",
        show_default=True,
        metavar="DURATION",
        help=(
            "Interval between scrapes of a dcgm-exporter, from 1s to 30s. It reads its GPUs every"
            " 30 s by default; -c 1000 makes it read them every second."
        ),
    ),
    setting(
        "--gpu-replica",
        group="GPUs",
        multiple=True,
        metavar="GPU=REPLICA",
        help=(
            "Assign a GPU to a replica; overrides detection. GPU is a UUID, an index, HOST/INDEX"
            " for a GPU of a dcgm-exporter, or * for all other GPUs of this machine. May be"
            " repeated."
        ),
    ),
    setting(
        "--dcgm-replica",
        group="GPUs",
        default="{pod}",
        show_default=True,
        metavar="TEMPLATE",
        help=(
            "Template for the name of the replica that uses a dcgm-exporter's GPU, such as"
            " {namespace}/{pod}. Each name in braces is a label of the GPU's series."
        ),
    ),
)


def gpu_options(command: _Command) -> _Command:
    """Add the options whose values `gpu_setup_of` takes."""
    return with_options(command, *_OPTIONS)


def gpu_setup_of(
    *,
    gpus: str,
    dcgm: tuple[str, ...],
    dcgm_token_file: Path | None,
    dcgm_ca: Path | None,
    dcgm_every: int,
    gpu_replica: tuple[str, ...],
    dcgm_replica: str,
    insecure_credentials: bool = False,
) -> "GpuSetup":
    """Parse the options, or raise click.UsageError."""
    from collector.gpus.configured_owners import checked_template, configured_owners_of
    from collector.scrape.targets import place
    from server.gpu_setup import GpuSetup

    try:
        checked_template(dcgm_replica)
    except ValueError as error:
        raise click.UsageError(f"--dcgm-replica {error}") from error
    try:
        claims = configured_owners_of(gpu_replica, dcgm_replica)
    except ValueError as error:
        raise click.UsageError(f"--gpu-replica {error}") from error
    access = _ACCESS.read(dcgm, dcgm_token_file, dcgm_ca, insecure_credentials)
    try:
        places = tuple(place(given, access) for given in dcgm)
    except ValueError as error:
        raise click.UsageError(f"--dcgm: {error}") from error
    return GpuSetup(gpus == "auto", places, dcgm_every / 1e9, claims)
