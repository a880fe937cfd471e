"""Options for addresses."""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

import click

from cli.options.numbers import WholeRange
from cli.options.settings import setting
from telemetry.addresses import authority as authority
from telemetry.addresses import is_loopback as is_loopback

PORT = WholeRange(0, 65_535)
"""A port number. 0 selects a free port."""

REMOTE_PORT = WholeRange(1, 65_535)

_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_NUMBERS = re.compile(r"[0-9.]+|[^%]*:.*")
_ALLOWED = (
    "allowed: 127.0.0.1 (this machine only), 0.0.0.0 (every address), or another address or name"
    " of this machine"
)


class Host(click.ParamType[str]):
    """An address to listen on. An empty text is refused, because it would mean every address."""

    name = "host"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The host without brackets."""
        host = str(value).removeprefix("[").removesuffix("]")
        if not _HOST.fullmatch(host) or (_NUMBERS.fullmatch(host) and not _is_address(host)):
            self.fail(f"invalid address {host!r}; {_ALLOWED}")
        return host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def check_own_address(host: str) -> None:
    """Raise click.UsageError if `host` is not an address of this machine."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError as error:
        raise click.UsageError(
            f"--host {host}: this machine has no such address ({error.strerror}); {_ALLOWED}"
        ) from error


def reaches(host: str, listening: str) -> bool:
    """Whether a client on this machine that connects to `host` reaches a server that listens on
    `listening`. False if a name cannot be resolved."""
    try:
        targets, own = _addresses(host), _addresses(listening)
    except (OSError, UnicodeError):
        return False
    for target in targets:
        if target.is_unspecified:
            target = ip_address("127.0.0.1" if target.version == 4 else "::1")
        everywhere = any(each.is_unspecified and each.version == target.version for each in own)
        if target in own or (everywhere and _is_of_this_machine(target)):
            return True
    return False


def _addresses(host: str) -> set[IPv4Address | IPv6Address]:
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    addresses = [ip_address(str(place[0])) for *_, place in found]
    return {getattr(each, "ipv4_mapped", None) or each for each in addresses}


def _is_of_this_machine(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address belongs to this machine.

    A datagram socket is connected to the address, which sends no data. If the address belongs to
    this machine, the socket's own address is the same.
    """
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False


host_option = setting(
    "--host",
    group="Ports",
    type=Host(),
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. An address that other machines can reach requires tokens and TLS.",
)


class ServerAddress(click.ParamType[str]):
    """The base address of an HTTP server, as in `http://gpu-host:8000`."""

    name = "url"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The address without a final slash and without OpenAI's path /v1."""
        try:
            return base_url(str(value))
        except ValueError as error:
            self.fail(str(error))


def base_url(text: str) -> str:
    """The base address of an HTTP server.

    Raises:
        ValueError: the text is not a base address, or contains a password. The message omits the
            password.
    """
    allowed = "allowed: http://HOST:PORT or https://HOST:PORT"
    if "@" in text:
        raise ValueError(
            f"it must not contain an @, because user names and passwords are not allowed; {allowed}"
        )
    try:
        # urlsplit would silently remove blanks and line ends.
        if any(character <= " " or character == "\x7f" for character in text):
            raise ValueError("a blank or control character")
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https"):
            raise ValueError("neither http:// nor https://")
        if not parts.hostname:
            raise ValueError("no host")
        if parts.port == 0:
            raise ValueError("port 0")
        if parts.query or parts.fragment:
            raise ValueError("more than a base address")
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; {allowed}") from error
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"
