"""How to get in where `tailspan up` asks for a token or speaks TLS: the options of `doctor`."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.addresses import authority
from cli.credentials import check_exposure, insecure_credentials_option
from server.client_access import Access

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_OPTIONS = (
    click.option(
        "--token-file",
        type=_FILE,
        metavar="PATH",
        help="The first token in it is shown to OTLP and /metrics."
        "  [default: TAILSPAN_TOKEN_FILE, else TAILSPAN_TOKENS]",
    ),
    click.option("--tls", is_flag=True, help="OTLP and /metrics speak TLS."),
    click.option(
        "--tls-ca",
        type=_FILE,
        metavar="PATH",
        help="Who signed its certificate, in PEM; implies --tls.  [default: the system's]",
    ),
    click.option(
        "--tls-client-cert",
        type=_FILE,
        metavar="PATH",
        help="Our certificate, for mutual TLS.",
    ),
    click.option("--tls-client-key", type=_FILE, metavar="PATH", help="Its key."),
    insecure_credentials_option,
)


def access_options(command: _Command) -> _Command:
    """The options whose values `access_of` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def access_of(
    *,
    token_file: Path | None,
    tls: bool,
    tls_ca: Path | None,
    tls_client_cert: Path | None,
    tls_client_key: Path | None,
    host: str = "127.0.0.1",
    insecure_credentials: bool = False,
) -> Access:
    """What the options say.

    Raises:
        click.UsageError: they contradict each other, a file is not what it should be, or the token
            would go to `host` where others can read it.
    """
    from collector.errors import SecurityError
    from collector.listen.bearer_tokens import Tokens, read_tokens

    if (tls_client_cert is None) != (tls_client_key is None):
        raise click.UsageError("--tls-client-cert and --tls-client-key: give both, or none")
    try:
        given = read_tokens(token_file, os.environ)
        if given is not None:
            Tokens(*given)
    except SecurityError as error:
        raise click.UsageError(str(error)) from error
    pair = (tls_client_cert, tls_client_key) if tls_client_cert and tls_client_key else None
    access = Access(given[0][0] if given else None, tls or bool(tls_ca or pair), tls_ca, pair)
    if access.token:
        url = f"{access.scheme}://{authority(host, 4318)}"
        check_exposure("--host", url, "the token", insecure_credentials)
    try:
        access.context()
    except (ssl.SSLError, OSError) as error:
        raise click.UsageError(f"--tls-ca, --tls-client-cert, --tls-client-key: {error}") from error
    return access
