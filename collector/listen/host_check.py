"""Check Host and Origin headers, so that web pages in a browser cannot access this server.

Without these checks, an attacker's page could read every response by DNS rebinding. With DNS
rebinding, the Host header contains the host name of the attacker's page. A POST from a page of a
different server contains the Origin of that page. Source: RFC 9110, "Host and :authority"; RFC
6454.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ENVIRONMENT_KEY: Final = "TAILSPAN_ALLOWED_HOSTS"
OPTION: Final = "--allowed-host"

PRIVATE_SUFFIXES: Final = (".svc", ".cluster.local", ".internal", ".local", ".home.arpa")
"""Suffixes that public DNS never resolves. So an attacker's page cannot have such a name. Sources:
Kubernetes services, ICANN's private-use domain (resolution 2024.07.29), RFC 6762, RFC 8375."""

_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The host names that requests may contain.

    IP addresses, `localhost` and `*.localhost` are always allowed.
    """

    names: frozenset[str] = frozenset()
    """Host names in lower case. `*.example.org` matches every name below `example.org`."""
    private: bool = False
    """Whether names without a dot and names under `PRIVATE_SUFFIXES` are also allowed."""
    any_name: bool = False
    """Whether every name is allowed, because tokens or TLS already prevent DNS rebinding."""

    @classmethod
    def of(
        cls, names: Iterable[str], *, loopback: bool, protected: bool, own: Iterable[str] = ()
    ) -> "AllowedHosts":
        """The allowed hosts for a server's address.

        Args:
            own: the address to listen on and the machine's name. IP addresses are ignored.
            protected: whether the server requires tokens or TLS, which stop an attacker's page.

        Raises:
            ValueError: a name is not a host name.
        """
        server = frozenset(name.lower() for name in own if _NAME.fullmatch(name.lower()))
        return cls(server.union(map(checked, names)), private=not loopback, any_name=protected)

    def allow(self, authority: str) -> bool:
        """Whether a request to `HOST` or `HOST:PORT` is allowed."""
        name = _host(authority)
        if name is None:
            return False
        if self.any_name or name == "localhost" or name.endswith(".localhost") or _is_ip(name):
            return True
        if self.private and ("." not in name or name.endswith(PRIVATE_SUFFIXES)):
            return True
        return self.named(name)

    def named(self, name: str) -> bool:
        """Whether the user has configured this host name."""
        if name in self.names:
            return True
        parts = name.split(".")
        return any("*." + ".".join(parts[first:]) in self.names for first in range(1, len(parts)))


def checked(name: str) -> str:
    """Return a name in lower case and without a final dot.

    Raises:
        ValueError: the name is not a host name, or has a port.
    """
    lower = name.strip().lower().removesuffix(".")
    if not _NAME.fullmatch(lower):
        raise ValueError(
            f"{name!r:.80} is not a host name; allowed: a name without a port, such as"
            " tailspan.example.org, or *.example.org for every name below it"
        )
    return lower


def names_in(given: Collection[str], environ: Mapping[str, str]) -> list[str]:
    """The names in the option's value and in the environment variable."""
    return [*given, *environ.get(ENVIRONMENT_KEY, "").replace(",", " ").split()]


class HostGate:
    """An ASGI application that answers only requests to an allowed host.

    An Origin header must have this server's host and port, or a host that the user allowed.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: AllowedHosts,
        open_paths: Collection[str] = (),
        refused: Callable[[str], None] = lambda path: None,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._open_paths = frozenset(open_paths)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the application, or answer 403."""
        if scope["type"] in ("http", "websocket") and scope["path"] not in self._open_paths:
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                self._refused(scope["path"])
                await _refuse(refusal, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> str | None:
        # Only HTTP/1.0 clients may omit Host; browsers never do.
        host = headers.get("host")
        if host is not None and not self._hosts.allow(host):
            return (
                f"Host {host!r:.80} is not allowed: use an IP address or localhost, or start"
                f" Tailspan with {OPTION} NAME (or {ENVIRONMENT_KEY})"
            )
        origin = headers.get("origin")
        if origin is not None and not self._from_here(origin, host):
            return (
                f"Origin {origin!r:.80} is not allowed: pages of other hosts may not call"
                f" Tailspan unless it is started with {OPTION} NAME (or {ENVIRONMENT_KEY})"
            )
        return None

    def _from_here(self, origin: str, host: str | None) -> bool:
        try:
            authority = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        if not authority:  # the origin of a file or a sandboxed frame is "null"
            return False
        if host is not None and authority == host.lower():
            return True
        name = _host(authority)
        return name is not None and self._hosts.named(name)


async def _refuse(why: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await PlainTextResponse(f"{why}\n", 403)(scope, receive, send)


_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{0,5})?")


def _host(authority: str) -> str | None:
    found = _AUTHORITY.fullmatch(authority.strip().lower())
    return found[1].strip("[]").removesuffix(".") if found else None


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
