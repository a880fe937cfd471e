"""`tailspan ui`."""

import os
from pathlib import Path

import click

from cli.errors import Unreachable
from cli.options.addresses import PORT, authority, check_own_address, host_option, is_loopback
from cli.options.endpoints import allowed_host_option, insecure_bind_option
from cli.options.extras import check_extra
from cli.options.price_files import own_peaks, prices_of
from cli.options.roles import NO_SIGN_IN, roles_of, roles_option
from cli.options.settings import SettingsCommand, announce_file, config_option, setting
from cli.options.shared import database_option, objectives_option, prices_option, state_url
from cli.options.sign_in import sign_in_of, sign_in_options
from server.explorer_launch import DEFAULT_PORT, launch
from telemetry.database_urls import default_url


@click.command(
    cls=SettingsCommand,
    epilog="""\b
Examples:
  tailspan ui
  tailspan ui --database postgresql+psycopg://reader@db/tailspan --port 8502
  tailspan ui --base-path tailspan     behind a proxy that serves https://HOST/tailspan/
  tailspan ui --sign-in sign-in.yaml   only readers in this file, behind a proxy with TLS
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
@insecure_bind_option("Allow a --host that other machines can reach, without --sign-in.")
@allowed_host_option
@sign_in_options
@roles_option
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
    roles: Path | None,
) -> None:
    """Run the explorer alone until Ctrl-C.

    The explorer only reads the database. On an address that other machines can reach, use
    --sign-in, or a proxy with a login.
    """
    from collector.errors import ListenError
    from collector.listen.asgi_server import listen
    from collector.listen.host_check import ENVIRONMENT_KEY as HOSTS_KEY
    from collector.listen.host_check import OPTION, checked, names_in

    announce_file()
    check_extra("streamlit", "explorer", "the explorer")
    check_own_address(host)
    sign_in_settings, base_path = sign_in_of(sign_in, base_path)
    if roles_of(roles) is not None and sign_in_settings is None:
        raise click.UsageError(NO_SIGN_IN)
    if not is_loopback(host) and not insecure_bind and sign_in_settings is None:
        raise click.UsageError(
            f"--host {host} can be reached from other machines: set the allowed readers in"
            " --sign-in FILE, or use a proxy with a login; --insecure-bind allows all readers"
        )
    try:
        for name in names_in(allowed_host, os.environ):
            checked(name)
    except ValueError as error:
        raise click.UsageError(f"{OPTION}, {HOSTS_KEY}: {error}") from error
    # Report errors in these files before the explorer starts.
    prices_of(prices)
    own_peaks()
    try:
        # Streamlit's error would not name the option to change.
        with listen(host, port, "--port") as found:
            port = found.getsockname()[1]
    except ListenError as error:
        raise Unreachable(str(error)) from error
    start = launch(
        host=host,
        port=port,
        base_path=base_path,
        database_url=database or default_url(os.environ),
        state_url=state_url(),
        objectives=objectives,
        prices=prices,
        sign_in=sign_in_settings,
        roles=roles,
        allowed_hosts=allowed_host,
    )
    under = f"{base_path}/" if base_path else ""
    where = f"http://{authority(host, port)}/{under}"
    if sign_in_settings is not None:
        _, settings = sign_in_settings
        where = f"{settings.url}/, for readers with an account at {settings.provider}"
    click.echo(f"The explorer is at {where}  (Ctrl-C ends)")
    # The explorer receives the signals and sets the exit status.
    os.execve(start.command[0], start.command, {**os.environ, **start.environment})
