"""`tailspan doctor`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.checks import clocks, connections, front_ends, gpus, hung_engines, replica_names
from cli.checks.findings import as_json, as_text, guarded
from cli.checks.objectives import objectives as objectives_check
from cli.options.addresses import REMOTE_PORT, Host, ServerAddress
from cli.options.client_access import access_of, access_options
from cli.options.settings import SettingsCommand, config_option, setting
from cli.options.shared import database_option, format_option, objectives_option, prices_option

EXAMPLES = """\b
Examples:
  tailspan doctor
  tailspan doctor --vllm http://gpu-host:8000
  tailspan doctor --format json
  tailspan doctor --host tailspan.example --token-file tokens.txt --tls-ca ca.pem --no-explorer
"""


def _port(name: str, default: int, what: str) -> Callable[..., Any]:
    return setting(
        f"--{name}-port",
        group="Ports",
        type=REMOTE_PORT,
        metavar="PORT",
        default=default,
        show_default=True,
        help=f"Port of {what}.",
    )


@click.command(cls=SettingsCommand, epilog=EXAMPLES)
@setting(
    "--vllm",
    group="Servers to watch",
    type=ServerAddress(),
    metavar="URL",
    help="Also check this vLLM, and fail if no recent telemetry arrived.",
)
@setting(
    "--host",
    group="Ports",
    type=Host(),
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address of the running Tailspan.",
)
@_port("grpc", 4317, "OTLP over gRPC")
@_port("http", 4318, "OTLP over HTTP")
@_port("metrics", 9464, "/metrics")
@_port("explorer", 8501, "the explorer")
@setting(
    "--base-path",
    group="Ports",
    default="",
    metavar="PATH",
    show_default="none",
    help="Path under which a proxy serves the explorer. Also required if tailspan up takes the path"
    " from the url in a --sign-in file.",
)
@setting("--no-explorer", group="Ports", is_flag=True, help="Do not check the explorer.")
@database_option
@config_option
@prices_option
@objectives_option
@access_options
@format_option(
    "Text, or one JSON object per line. In JSON, ok is null for a result that is neither good nor"
    " bad."
)
def doctor(
    vllm: str | None,
    host: str,
    grpc_port: int,
    http_port: int,
    metrics_port: int,
    explorer_port: int,
    base_path: str,
    no_explorer: bool,
    database: str | None,
    prices: Path | None,
    objectives: tuple[Path, ...],
    form: str,
    **ways_in: Any,
) -> None:
    """Check each connection and the local GPUs, and print how to repair failures.

    Exit status 1: a check failed.
    """
    access = access_of(**ways_in, host=host)
    looks = [
        connections.database(database, server_expected=vllm is not None),
        connections.prices(database, prices),
    ]
    if vllm:
        looks.append(connections.vllm(vllm))
    looks += [
        connections.otlp_grpc(host, grpc_port, access),
        connections.otlp_http(host, http_port, access),
        connections.metrics(host, metrics_port, access),
        connections.tasks(host, metrics_port, access),
        connections.refusals(host, metrics_port, access),
        hung_engines.steps(database),
        objectives_check(database, objectives, host, metrics_port, access),
        replica_names.names(database),
        front_ends.front_ends(database),
        clocks.clocks(host, metrics_port, access),
        clocks.against_clients(database),
        connections.scrapes(host, metrics_port, access),
        gpus.readers(host, metrics_port, access),
        gpus.owners(database),
        gpus.local(),
    ]
    if not no_explorer:
        looks.append(connections.explorer(host, explorer_port, base_path))
    failed = False
    for look in looks:
        for finding in guarded(look):
            failed = failed or finding.ok is False
            click.echo(as_json(finding) if form == "json" else as_text(finding))
    if failed:
        raise click.exceptions.Exit(1)
