"""`tailspan up`: all of it, until Ctrl-C."""

import asyncio
import os
from pathlib import Path

import click

from cli import probes
from cli.addresses import PORT, Host, Server, authority
from cli.unreachable import Unreachable

EXAMPLES = """\b
Examples:
  tailspan up
  tailspan up --simulate
  tailspan up --vllm http://gpu-host:8000
  tailspan up --database sqlite:////var/lib/tailspan/tailspan.db --no-explorer
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--vllm",
    type=Server(),
    metavar="URL",
    help="The server to watch; says whether it reports here.",
)
@click.option("--simulate", is_flag=True, help="Start a simulated fleet with an incident, too.")
@click.option(
    "--host", type=Host(), default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option("--grpc-port", type=PORT, default=4317, show_default=True, help="OTLP over gRPC.")
@click.option("--http-port", type=PORT, default=4318, show_default=True, help="OTLP over HTTP.")
@click.option(
    "--metrics-port", type=PORT, default=9464, show_default=True, help="/metrics for Prometheus."
)
@click.option("--explorer-port", type=PORT, default=8501, show_default=True, help="The pages.")
@click.option("--no-explorer", is_flag=True, help="Leave the pages out.")
@click.option(
    "--database",
    metavar="URL",
    help="Where to keep it all, as a SQLAlchemy URL."
    "  [default: TAILSPAN_DATABASE_URL, else sqlite:///var/tailspan.db]",
)
@click.option(
    "--objectives",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="OpenSLO files or folders to count good requests by; may be repeated."
    "  [default: those that come along: tailspan slo check]",
)
def up(
    vllm: str | None,
    simulate: bool,
    host: str,
    grpc_port: int,
    http_port: int,
    metrics_port: int,
    explorer_port: int,
    no_explorer: bool,
    database: str | None,
    objectives: tuple[Path, ...],
) -> None:
    """Run the collector, the exporter and the explorer as one, until Ctrl-C."""
    # The parts take a while to import: only who runs them waits for it.
    from alerts.errors import AlertsError
    from alerts.openslo import load
    from cli import running
    from cli.children import ChildError
    from cli.slo import OBJECTIVES
    from cli.stack import Ports, Stack
    from collector.errors import ListenError
    from store.database import default_url, open_database

    if vllm and simulate:
        raise click.UsageError("--vllm and --simulate: give one of them, not both")
    try:
        in_force = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    url = database or default_url(os.environ)
    engine = open_database(url)
    ports = Ports(grpc_port, http_port, metrics_port, explorer_port)

    async def run() -> None:
        stack = Stack(
            engine,
            url,
            host,
            ports,
            explorer=not no_explorer,
            simulate=simulate,
            objectives=in_force,
        )
        await running.run(stack, vllm=vllm)

    try:
        asyncio.run(run())
    except ListenError as error:
        raise Unreachable(f"{error}{_is_it_us(host, metrics_port)}") from error
    except ChildError as error:
        raise Unreachable(str(error)) from error
    finally:
        engine.dispose()


def _is_it_us(host: str, metrics_port: int) -> str:
    """The likeliest reason why a port is taken: it runs already."""
    url = f"http://{authority(host, metrics_port)}/metrics"
    if "tailspan_" not in probes.get(url).body:
        return ""
    return f"\nA Tailspan is running here already: {url} is its own."
