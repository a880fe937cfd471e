"""Options of `tailspan up` for access to the ports, and for limits on received data.

Every address except loopback needs TLS, and tokens or client certificates. --insecure-bind disables
this check.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.options.addresses import is_loopback
from cli.options.bearer_tokens import token_file_option
from cli.options.host_names import HostNames
from cli.options.numbers import FiniteRange
from cli.options.roles import roles_of, roles_option
from cli.options.settings import setting, with_options

if TYPE_CHECKING:  # a slow import
    from analysis.access.roles_file import Roles
    from collector.listen.bearer_tokens import BearerTokens
    from server.endpoint_access import EndpointAccess

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)
_MIB = 2**20
MAX_BODY_MIB: Final = 16
MAX_PEER_RATE_MIB: Final = 128
MAX_RATE_MIB: Final = 512


def insecure_bind_option(meaning: str) -> Callable[..., Any]:
    """Return `--insecure-bind`."""
    return setting("--insecure-bind", group="Access", is_flag=True, help=meaning)


allowed_host_option = setting(
    "--allowed-host",
    group="Access",
    variable="TAILSPAN_ALLOWED_HOSTS",
    type=HostNames(),
    multiple=True,
    metavar="NAME",
    help=(
        "DNS name that clients may use for OTLP/HTTP, /metrics, /api and the explorer. Web pages"
        " served from NAME may also send requests. *.NAME allows every subdomain. IP addresses and"
        " localhost are always allowed. May be repeated; separate names by commas in the variable."
    ),
)

_ACCESS_CONTROL = (
    token_file_option(
        "File with bearer tokens, one per line, which clients of OTLP, /metrics, /api and tailspan"
        " mcp must then send. TAILSPAN_TOKENS can contain them instead. TOKEN:ROLE is a read-only"
        " token with a role from --roles."
    ),
    setting(
        "--tls-cert",
        group="Access",
        type=_FILE,
        metavar="PATH",
        help="Certificate for TLS, in PEM.",
    ),
    setting(
        "--tls-key",
        group="Access",
        type=_FILE,
        metavar="PATH",
        help="Key of the certificate, without a password.",
    ),
    setting(
        "--tls-client-ca",
        group="Access",
        type=_FILE,
        metavar="PATH",
        help="Accept only clients whose certificate this CA signed (mutual TLS).",
    ),
    insecure_bind_option(
        "Allow a --host that other machines can reach, without tokens, TLS or sign-in."
    ),
    allowed_host_option,
    roles_option,
)
_LIMITS = (
    setting(
        "--max-body",
        group="Access",
        type=FiniteRange(1 / 1024, 1024),
        metavar="MIB",
        default=MAX_BODY_MIB,
        show_default=True,
        help="Maximum size of a message after decompression, in MiB.",
    ),
    setting(
        "--max-peer-rate",
        group="Access",
        type=FiniteRange(min=0, min_open=True),
        metavar="MIB/S",
        default=MAX_PEER_RATE_MIB,
        show_default=True,
        help="Maximum rate of the data from one address, in MiB per second.",
    ),
    setting(
        "--max-rate",
        group="Access",
        type=FiniteRange(min=0, min_open=True),
        metavar="MIB/S",
        default=MAX_RATE_MIB,
        show_default=True,
        help="Maximum rate of the data from all addresses together, in MiB per second.",
    ),
)


def endpoint_options(command: _Command) -> _Command:
    """Add the options whose values `endpoint_access_of` takes."""
    return with_options(command, *_ACCESS_CONTROL, *_LIMITS)


def access_control_options(command: _Command) -> _Command:
    """Add the options for access to the ports, without the limits on received data."""
    return with_options(command, *_ACCESS_CONTROL)


def endpoint_access_of(
    host: str,
    *,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    insecure_bind: bool,
    allowed_host: Sequence[str],
    roles: Path | None = None,
    max_body: float = MAX_BODY_MIB,
    max_peer_rate: float = MAX_PEER_RATE_MIB,
    max_rate: float = MAX_RATE_MIB,
    signed_in: bool = False,
) -> "EndpointAccess":
    """Parse the options.

    Raises:
        click.UsageError: the options contradict each other, a file is invalid, or other machines
            could reach a port without access control.
    """
    from collector.errors import SecurityError
    from collector.limits.sender_limits import CollectorLimits
    from collector.listen.bearer_tokens import BearerTokens, read_tokens, token_without_role
    from collector.listen.host_check import AllowedHosts, names_in
    from collector.listen.tls import Tls
    from server.endpoint_access import EndpointAccess

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key: set both or neither")
    if tls_client_ca is not None and tls_cert is None:
        raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key")
    try:
        given = read_tokens(token_file, os.environ)
        tokens = None if given is None else BearerTokens(*given)
        tls = Tls(tls_cert, tls_key, tls_client_ca) if tls_cert and tls_key else None
    except SecurityError as error:
        raise click.UsageError(str(error)) from error
    known = roles_of(roles)
    if tokens is not None:
        _check_roles(tokens, known)
    local = is_loopback(host)
    try:
        hosts = AllowedHosts.of(
            names_in(allowed_host, os.environ),
            own=(host, gethostname()),
            loopback=local,
            protected=tokens is not None or tls is not None,
        )
    except ValueError as error:
        raise click.UsageError(f"--allowed-host: {error}") from error
    if not local and not insecure_bind:
        missing = [
            *(["tokens (--token-file)"] if tokens is None and tls_client_ca is None else []),
            *(["TLS (--tls-cert, --tls-key)"] if tls is None else []),
        ]
        if missing:
            raise click.UsageError(
                f"--host {host} can be reached from other machines: set {' and '.join(missing)};"
                " --insecure-bind allows all machines to read and write"
            )
    return EndpointAccess(
        tokens=tokens,
        tls=tls,
        hosts=hosts,
        limits=CollectorLimits(
            max_body_bytes=max(1, round(max_body * _MIB)),
            max_peer_bytes_per_s=max_peer_rate * _MIB,
            max_bytes_per_s=max_rate * _MIB,
        ),
        roles=known,
        own_token=None if given is None else token_without_role(given[0]),
        explorer_host=None if local or insecure_bind or signed_in else "127.0.0.1",
    )


def _check_roles(tokens: "BearerTokens", roles: "Roles | None") -> None:
    known = () if roles is None else roles.by_name
    for each in sorted(tokens.roles):
        if each not in known:
            allowed = ", ".join(known) or "none, because there is no --roles FILE"
            raise click.UsageError(
                f"--token-file: a token has the role {each!r}; allowed: {allowed}"
            )
