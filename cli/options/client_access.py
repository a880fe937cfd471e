"""Options of `tailspan doctor` for a Tailspan that requires a token or TLS."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.options.addresses import authority
from cli.options.bearer_tokens import token_file_option
from cli.options.credentials import check_exposure, insecure_credentials_option
from cli.options.settings import with_options
from server.client_access import ClientAccess

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_OPTIONS = (
    token_file_option(
        "File whose first token is sent to OTLP and /metrics. TAILSPAN_TOKENS can contain it"
        " instead."
    ),
    click.option("--tls", is_flag=True, help="Use TLS for OTLP and /metrics."),
    click.option(
        "--tls-ca",
        type=_FILE,
        metavar="PATH",
        show_default="the system's",
        help="CA that signed the server's certificate, in PEM. Implies --tls.",
    ),
    click.option(
        "--tls-client-cert",
        type=_FILE,
        metavar="PATH",
        help="Client certificate, for mutual TLS.",
    ),
    click.option(
        "--tls-client-key", type=_FILE, metavar="PATH", help="Key of the client certificate."
    ),
    insecure_credentials_option,
)


def access_options(command: _Command) -> _Command:
    """Add the options whose values `access_of` takes."""
    return with_options(command, *_OPTIONS)


def access_of(
    *,
    token_file: Path | None,
    tls: bool,
    tls_ca: Path | None,
    tls_client_cert: Path | None,
    tls_client_key: Path | None,
    host: str = "127.0.0.1",
    insecure_credentials: bool = False,
) -> ClientAccess:
    """Parse the options.

    Raises:
        click.UsageError: the options contradict each other, a file is invalid, or the token would
            be sent without encryption.
    """
    from collector.errors import SecurityError
    from collector.listen.bearer_tokens import sending_token

    if (tls_client_cert is None) != (tls_client_key is None):
        raise click.UsageError("--tls-client-cert and --tls-client-key: set both or neither")
    try:
        token = sending_token(token_file, os.environ)
    except SecurityError as error:
        raise click.UsageError(str(error)) from error
    pair = (tls_client_cert, tls_client_key) if tls_client_cert and tls_client_key else None
    access = ClientAccess(token, tls or bool(tls_ca or pair), tls_ca, pair)
    if access.token:
        url = f"{access.scheme}://{authority(host, 4318)}"
        check_exposure("--host", url, "the token", insecure_credentials)
    try:
        access.context()
    except (ssl.SSLError, OSError) as error:
        raise click.UsageError(f"--tls-ca, --tls-client-cert, --tls-client-key: {error}") from error
    return access
