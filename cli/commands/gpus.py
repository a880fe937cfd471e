"""`tailspan gpus`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.bearer_tokens import token_file_option
from cli.options.credentials import check_exposure, insecure_credentials_setting
from cli.options.gpus import gpu_options, gpu_setup_of
from cli.options.settings import SettingsCommand, config_option
from cli.options.shared import format_option
from cli.render import gpus as gpu_tables

if TYPE_CHECKING:  # a slow import
    from collector.gpus.sampler import ReaderState
    from exporters.forwarding.forwarder import Forwarder
    from server.gpu_setup import GpuSetup
    from telemetry.gpus import GpuSample

EXAMPLES = """\b
Examples:
  tailspan gpus
  tailspan gpus --format json
  tailspan gpus --gpus off --dcgm http://gpu-host:9400
  tailspan gpus --endpoint http://collector:4318
  tailspan gpus --endpoint http://collector:4318 --gpu-replica 0=chat-0 --gpu-replica 1=chat-1
  tailspan gpus --endpoint https://collector:4318 --token-file tokens.txt --tls-ca ca.pem
"""

SAMPLE_GAP_S = 1.0
CLOSE_S = 5.0
PATIENCE_S = 300.0


@click.command(cls=SettingsCommand, epilog=EXAMPLES)
@gpu_options
@click.option(
    "--endpoint",
    metavar="URL",
    help=(
        "Sample each second until Ctrl-C, and send the samples to this OTLP/HTTP collector every"
        " 5 s."
    ),
)
@click.option(
    "--replica",
    metavar="NAME",
    help=(
        "Name of the replica (service.instance.id) that uses all GPUs of this machine. Same as"
        " --gpu-replica '*=NAME'."
    ),
)
@token_file_option(
    "File whose first token is sent to the collector. TAILSPAN_TOKENS can contain it instead."
)
@click.option(
    "--tls-ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="PATH",
    show_default="the system's",
    help="CA that signed the collector's certificate, in PEM.",
)
@format_option("A table, or one JSON object per GPU and line.")
@insecure_credentials_setting
@config_option
def gpus(
    endpoint: str | None,
    replica: str | None,
    token_file: Path | None,
    tls_ca: Path | None,
    form: str,
    insecure_credentials: bool,
    **about: Any,
) -> None:
    """Show the state of each GPU, and the reasons for missing values.

    With --endpoint, the samples are sent to a collector on another machine. `tailspan up` samples
    its own machine automatically.
    """
    if replica is not None:
        about["gpu_replica"] = (*about["gpu_replica"], f"*={replica}")
    setup = gpu_setup_of(**about, insecure_credentials=insecure_credentials)
    if not setup.any:
        raise click.UsageError("--gpus off and no --dcgm: there is no GPU to sample")
    if endpoint is None:
        _show(setup, form)
        return
    from cli import gpu_agent

    forwarder = _forwarder(endpoint, token_file, tls_ca, insecure_credentials)
    asyncio.run(gpu_agent.run(setup, forwarder, endpoint))


def _show(setup: "GpuSetup", form: str) -> None:
    samples, states = asyncio.run(look(setup))
    if form == "json":
        for line in gpu_tables.json_lines(samples, states):
            click.echo(line)
    else:
        for line in gpu_tables.text_lines(samples, states):
            click.echo(line)
    for line in gpu_tables.missing_values(samples, states):
        click.echo(line, err=True)
    if any(state.up is False or (state.lost and not samples) for state in states):
        raise click.exceptions.Exit(2)


async def look(setup: "GpuSetup") -> "tuple[list[GpuSample], list[ReaderState]]":
    """Return the second of two samples, because a rate needs two samples."""
    from collector.gpus.sampler import GpuSampler

    samples: list[GpuSample] = []

    async def keep(sampled: "list[GpuSample]") -> None:
        samples.extend(sampled)

    readers = setup.readers()
    sampler = GpuSampler(readers.all, setup.owners(receives_engines=False), keep)  # type: ignore[arg-type]
    try:
        await asyncio.gather(*(sampler.read(reader) for reader in readers.all))
        if any(state.up for state in sampler.report()):
            await asyncio.sleep(SAMPLE_GAP_S)
            samples.clear()
            await asyncio.gather(*(sampler.read(reader) for reader in readers.all))
        return samples, sampler.report()
    finally:
        await readers.close()


def _forwarder(
    endpoint: str, token_file: Path | None, tls_ca: Path | None, insecure: bool
) -> "Forwarder":
    import ssl

    from cli.options.addresses import base_url
    from collector.errors import SecurityError
    from collector.listen.bearer_tokens import sending_token
    from exporters.forwarding.forwarder import Forwarder
    from exporters.forwarding.http_post import HttpPost

    try:
        url = base_url(endpoint)
        token = sending_token(token_file, os.environ)
        context = ssl.create_default_context(cafile=tls_ca) if tls_ca else None
    except ValueError as error:
        raise click.UsageError(f"--endpoint {error}") from error
    except SecurityError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:  # includes ssl.SSLError
        raise click.UsageError(f"--tls-ca: {error}") from error
    if token:
        check_exposure("--endpoint", url, "the token", insecure)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return Forwarder(HttpPost(url, headers, context), patience_s=PATIENCE_S)
