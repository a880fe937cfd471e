"""`tailspan ui`: the pages alone, on a database that a collector elsewhere writes."""

import os
from pathlib import Path

import click

from cli.errors import Unreachable
from cli.options.addresses import PORT, authority, check_own_address, host_option, is_loopback
from cli.options.endpoints import allowed_host_option, insecure_bind_option
from cli.options.extras import check_extra
from cli.options.price_files import own_peaks, prices_of
from cli.options.settings import SettingsCommand, announce_file, config_option, setting
from cli.options.shared import database_option, objectives_option, prices_option
from cli.options.sign_in import sign_in_of, sign_in_options
from server.explorer_launch import DEFAULT_PORT, launch
from store.database import default_url


@click.command(
    cls=SettingsCommand,
    epilog="""\b
Examples:
  tailspan ui
  tailspan ui --database postgresql+psycopg://reader@db/tailspan --port 8502
  tailspan ui --base-path tailspan     behind a proxy that serves https://HOST/tailspan/
  tailspan ui --sign-in sign-in.yaml   for those who may, behind a proxy that speaks TLS
""",
)
@host_option
@setting(
    "--port",
    group="Ports",
    key="explorer-port",
    type=PORT,
    metavar="PORT",
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on.",
)
@database_option
@config_option
@objectives_option
@prices_option
@insecure_bind_option("Allow a --host that other machines can reach without --sign-in.")
@allowed_host_option
@sign_in_options
def ui(
    host: str,
    port: int,
    database: str | None,
    objectives: tuple[Path, ...],
    prices: Path | None,
    insecure_bind: bool,
    allowed_host: tuple[str, ...],
    sign_in: Path | None,
    base_path: str,
) -> None:
    """Run the pages alone, until Ctrl-C.

    They read the database and write nothing. On loopback for whoever is there; elsewhere for those
    who sign in, or behind a proxy that asks who comes.
    """
    from collector.errors import ListenError
    from collector.listen.asgi_server import listen
    from collector.listen.host_check import ENVIRONMENT_KEY as HOSTS_KEY
    from collector.listen.host_check import OPTION, checked, names_in

    announce_file()
    check_extra("streamlit", "explorer", "the explorer")
    check_own_address(host)
    asked, base_path = sign_in_of(sign_in, base_path)
    if not is_loopback(host) and not insecure_bind and asked is None:
        raise click.UsageError(
            f"--host {host} can be reached from other machines: say with --sign-in FILE who may"
            " read, put a proxy with a login before it, or say with --insecure-bind that anybody"
            " there may"
        )
    try:
        for name in names_in(allowed_host, os.environ):
            checked(name)
    except ValueError as error:
        raise click.UsageError(f"{OPTION}, {HOSTS_KEY}: {error}") from error
    # The pages read them for themselves; what is wrong with them is said here.
    prices_of(prices)
    own_peaks()
    try:
        # Streamlit would not say which option is to be changed.
        with listen(host, port, "--port") as found:
            port = found.getsockname()[1]
    except ListenError as error:
        raise Unreachable(str(error)) from error
    start = launch(
        host=host,
        port=port,
        base_path=base_path,
        database_url=database or default_url(os.environ),
        objectives=objectives,
        prices=prices,
        sign_in=asked,
        allowed_hosts=allowed_host,
    )
    under = f"{base_path}/" if base_path else ""
    where = f"http://{authority(host, port)}/{under}"
    if asked is not None:
        where = f"{asked[1].url}/, for those whom {asked[1].provider} knows"
    click.echo(f"The pages are on {where}  (Ctrl-C ends)")
    # In its place rather than beside it: signals and its exit status are then its own.
    os.execve(start.command[0], start.command, {**os.environ, **start.environment})
