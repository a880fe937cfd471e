"""`tailspan mcp`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.errors import Unreachable
from cli.options.addresses import PORT, ServerAddress, authority, check_own_address, host_option
from cli.options.api import timeout_option
from cli.options.endpoints import access_control_options, endpoint_access_of
from cli.options.extras import check_extra
from cli.options.roles import roles_of
from cli.options.settings import SettingsCommand, config_option
from cli.options.shared import database_option, objectives_option, prices_option, state_url

if TYPE_CHECKING:  # a slow import
    from server.api.worker_pool import WorkerPool
    from server.endpoint_access import EndpointAccess

DEFAULT_PORT: Final = 9465


@click.command(
    cls=SettingsCommand,
    epilog="""\b
Examples:
  tailspan mcp
  tailspan mcp --explorer-url http://127.0.0.1:8501
  tailspan mcp --transport http --port 9465
  tailspan mcp --transport http --host 0.0.0.0 --token-file tokens.txt \\
      --tls-cert cert.pem --tls-key key.pem
""",
)
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="stdio for a client that starts this command. http serves streamable HTTP at /mcp.",
)
@host_option
@click.option(
    "--port",
    type=PORT,
    metavar="PORT",
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of --transport http.",
)
@click.option(
    "--explorer-url",
    type=ServerAddress(),
    envvar="TAILSPAN_EXPLORER_URL",
    show_envvar=True,
    metavar="URL",
    help="Address of the explorer, for a link in each answer to the page that shows it.",
)
@timeout_option
@access_control_options
@database_option
@objectives_option
@prices_option
@config_option
def mcp(
    transport: str,
    host: str,
    port: int,
    explorer_url: str | None,
    api_timeout: int,
    database: str | None,
    objectives: tuple[Path, ...],
    prices: Path | None,
    roles: Path | None,
    **access: Any,
) -> None:
    """Let AI assistants query Tailspan, over the Model Context Protocol (MCP).

    The assistant gets a tool for each of stats, explain, requests, cost, caches, slo status,
    compare, what-if, budget, outside and starts. The tools only read the database, which contains
    neither prompts nor answers.

    An answer has at most 20,000 characters. Longer lists are shortened, with the number of omitted
    elements.
    """
    from collector.errors import ListenError
    from server.api.limits import ApiLimits
    from server.api.worker_pool import WorkerPool
    from server.explorer_launch import reading_environment
    from telemetry.database_urls import default_url

    check_extra("mcp", "mcp", "tailspan mcp")
    roles_of(roles)
    environment = reading_environment(
        database or default_url(os.environ), objectives, prices, state_url(), roles
    )
    if explorer_url:
        environment["TAILSPAN_EXPLORER_URL"] = explorer_url
    pool = WorkerPool(environment, ApiLimits(seconds=api_timeout / 1e9))
    if transport == "stdio":
        from server.api.mcp_transports import serve_stdio

        asyncio.run(serve_stdio(pool))
        return
    check_own_address(host)
    try:
        asyncio.run(_serve_http(pool, host, port, endpoint_access_of(host, roles=roles, **access)))
    except ListenError as error:
        raise Unreachable(str(error)) from error


async def _serve_http(pool: "WorkerPool", host: str, port: int, access: "EndpointAccess") -> None:
    from server.api.mcp_transports import PATH, McpHost
    from server.signals import stop_on_signals

    stop = stop_on_signals(pool.kill)
    serving = McpHost(pool, host, port, access)
    async with serving.serving():
        address = f"{access.scheme}://{authority(host, serving.port)}{PATH}"
        click.echo(f"The MCP server is at {address}  (Ctrl-C ends)")
        await stop.wait()
