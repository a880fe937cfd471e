"""Which GPUs are sampled, and whose they are: the options of `up`, `gpus` and what they mean."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.numbers import FiniteRange
from cli.target_access import TargetAccess

if TYPE_CHECKING:  # it brings libraries, and a command waits for its imports
    from server.gpu_setup import GpuSetup

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ACCESS: Final = TargetAccess("--dcgm")

_OPTIONS = (
    click.option(
        "--gpus",
        type=click.Choice(["auto", "off"]),
        default="auto",
        show_default=True,
        help="Sample the GPUs of this machine each second, where there are any: NVIDIA's through"
        " NVML, AMD's through AMD SMI.",
    ),
    click.option(
        "--dcgm",
        multiple=True,
        metavar="URL",
        help="Ask this dcgm-exporter for its GPUs: those older than Hopper, or elsewhere."
        " Addresses as of --scrape: http://HOST:9400, dns+http://NAME:9400. May be repeated.",
    ),
    *_ACCESS.options(),
    click.option(
        "--dcgm-every",
        type=FiniteRange(1, 60),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How often, from 1 to 60 s; an exporter looks every 30 s unless started with -c 1000.",
    ),
    click.option(
        "--gpu-replica",
        multiple=True,
        metavar="GPU=REPLICA",
        help="Whose a GPU is, whatever else says so. GPU: a UUID, a number, HOST/NUMBER of a"
        " dcgm-exporter's, or * for all others here. May be repeated.",
    ),
    click.option(
        "--dcgm-replica",
        default="{pod}",
        show_default=True,
        metavar="TEMPLATE",
        help="Whose a dcgm-exporter's GPU is, made of its labels, as {namespace}/{pod}.",
    ),
)


def gpu_options(command: _Command) -> _Command:
    """The options whose values `gpu_setup_of` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gpu_setup_of(
    *,
    gpus: str,
    dcgm: tuple[str, ...],
    dcgm_token_file: Path | None,
    dcgm_ca: Path | None,
    dcgm_every: float,
    gpu_replica: tuple[str, ...],
    dcgm_replica: str,
    insecure_credentials: bool = False,
) -> "GpuSetup":
    """What the options say.

    Raises:
        click.UsageError: one of them is malformed.
    """
    from collector.gpus.configured_owners import checked_template, claims_of
    from collector.scrape.targets import place
    from server.gpu_setup import GpuSetup

    try:
        checked_template(dcgm_replica)
    except ValueError as error:
        raise click.UsageError(f"--dcgm-replica {error}") from error
    try:
        claims = claims_of(gpu_replica, dcgm_replica)
    except ValueError as error:
        raise click.UsageError(f"--gpu-replica {error}") from error
    access = _ACCESS.read(dcgm, dcgm_token_file, dcgm_ca, insecure_credentials)
    try:
        places = tuple(place(given, access) for given in dcgm)
    except ValueError as error:
        raise click.UsageError(f"--dcgm: {error}") from error
    return GpuSetup(gpus == "auto", places, dcgm_every, claims)
