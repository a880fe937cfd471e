"""`tailspan ui`: the pages alone, on a database that a collector elsewhere writes."""

import os
from pathlib import Path

import click

from cli.addresses import PORT, Host, authority, is_loopback
from cli.figures import own_peaks, prices_of
from cli.signing_in import sign_in_of, sign_in_options
from cli.unreachable import Unreachable
from store.database import default_url
from ui.serving.launch import DEFAULT_PORT, launch


@click.command(
    epilog="""\b
Examples:
  tailspan ui
  tailspan ui --database postgresql+psycopg://reader@db/tailspan --port 8502
  tailspan ui --base-path tailspan     behind a proxy that serves https://HOST/tailspan/
  tailspan ui --sign-in sign-in.yaml   for those who may, behind a proxy that speaks TLS
"""
)
@click.option(
    "--host", type=Host(), default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option("--port", type=PORT, default=DEFAULT_PORT, show_default=True, help="And the port.")
@click.option(
    "--database",
    metavar="URL",
    help="What to show, as a SQLAlchemy URL."
    "  [default: TAILSPAN_DATABASE_URL, else sqlite:///var/tailspan.db]",
)
@click.option(
    "--objectives",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="OpenSLO files or folders in force, as for `tailspan up`; may be repeated."
    "  [default: those that come along]",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What your GPUs cost, as for `tailspan up`.  [default: TAILSPAN_PRICES, else list prices]",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="Listen on an address that others can reach without --sign-in.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Let browsers address the pages by this name, too, as behind a proxy; *.NAME for all"
    " below it. Addresses, localhost, --host and the host of --sign-in's url are allowed. May be"
    " repeated.  [default: those in TAILSPAN_ALLOWED_HOSTS]",
)
@sign_in_options
def ui(
    host: str,
    port: int,
    database: str | None,
    objectives: tuple[Path, ...],
    prices: Path | None,
    insecure_bind: bool,
    allowed_hosts: tuple[str, ...],
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

    asked, base_path = sign_in_of(sign_in, base_path)
    if not is_loopback(host) and not insecure_bind and asked is None:
        raise click.UsageError(
            f"--host {host} can be reached from other machines: say with --sign-in FILE who may"
            " read, put a proxy with a login before it, or say with --insecure-bind that anybody"
            " there may"
        )
    try:
        for name in names_in(allowed_hosts, os.environ):
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
        allowed_hosts=allowed_hosts,
    )
    under = f"{base_path}/" if base_path else ""
    where = f"http://{authority(host, port)}/{under}"
    if asked is not None:
        where = f"{asked[1].url}/, for those whom {asked[1].provider} knows"
    click.echo(f"The pages are on {where}  (Ctrl-C ends)")
    # In its place rather than beside it: signals and its exit status are then its own.
    os.execve(start.command[0], start.command, {**os.environ, **start.environment})
