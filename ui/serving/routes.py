"""Allow only the routes that the explorer needs, and limit its WebSockets.

All other routes get 404, including routes of new Streamlit versions. Some are unsafe: Streamlit
keeps uploads in memory, its `/_stcore/metrics` exposes data about the process, and its agent API
executes pages.

- `/_stcore/health`: open to everyone, without a Host check. The response has no data.
- `/`, `/index.html`, `/PAGE`: the frontend, after sign-in. `/?page=PAGE` is redirected to `/PAGE`.
- `/favicon.png`, `/manifest.json`, `/static/`: files of the frontend, open to everyone.
- `/_stcore/host-config`, `/_stcore/bidi-components/`, `/media/`: after sign-in.
- `/_stcore/stream`: a WebSocket, after sign-in, limited in number and in message size.
- `/auth/login`, `/auth/logout`, `/oauth2callback`: only if sign-in is on.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import Final
from urllib.parse import urlparse

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.frame.address import moved
from ui.frame.pages import FIRST, PAGES
from ui.serving.shell import Shell

HEALTH: Final = "/_stcore/health"
STREAM: Final = "/_stcore/stream"
MAX_OPEN: Final = 128
"""Maximum number of open WebSockets. With nine open pages, each WebSocket took 0.6 MB."""
MAX_OPEN_OF_ONE: Final = 48
"""The limit of open WebSockets per client address, so that no reader uses up `MAX_OPEN`.

Readers behind a proxy on another machine share one address, unless FORWARDED_ALLOW_IPS names the
proxy.
"""
MAX_MESSAGE_BYTES: Final = 1_000_000
"""The largest messages contain an objective that a reader tries on the SLOs page."""

_TRY_AGAIN_LATER: Final = 1013
_VIOLATION: Final = 1008


class _For(Enum):
    EVERYONE = auto()
    READERS = auto()
    SIGN_IN = auto()


_DOCUMENT: Final = ("", "/", "/index.html", *(f"/{page.key}" for page in PAGES))
_EXACT: Final = {
    HEALTH: _For.EVERYONE,
    **dict.fromkeys(_DOCUMENT, _For.READERS),
    "/favicon.png": _For.EVERYONE,
    "/manifest.json": _For.EVERYONE,
    "/_stcore/host-config": _For.READERS,
    "/auth/login": _For.SIGN_IN,
    "/auth/logout": _For.SIGN_IN,
    "/oauth2callback": _For.SIGN_IN,
}
_BELOW: Final = {
    "/static/": _For.EVERYONE,
    "/media/": _For.READERS,
    "/_stcore/bidi-components/": _For.READERS,
}

Admission = Callable[[Scope, str], Response | None]
"""Decides whether to admit a request. The arguments are the ASGI scope, and the path after the base
path. The result is the response that rejects the request, or None to admit the request."""


class Routes:
    """An ASGI application that forwards only the routes that the explorer needs.

    Args:
        base_path: without slashes at its ends.
        admission: None if sign-in is off.
        most: maximum number of open WebSockets.
        max_of_one: maximum number of open WebSockets of one client address.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        base_path: str = "",
        admission: Admission | None = None,
        most: int = MAX_OPEN,
        max_of_one: int = MAX_OPEN_OF_ONE,
    ) -> None:
        self._app = app
        self._base = f"/{base_path}" if base_path else ""
        self._shell = Shell(app, self._base)
        self._admission = admission
        self._most = most
        self._max_of_one = max_of_one
        self._open: Counter[str] = Counter()
        pages = ", ".join(f"{self._base}/{page.key}" for page in PAGES)
        self._not_found = PlainTextResponse(f"Not found. The pages are {pages}\n", 404)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or reject it."""
        match scope["type"]:
            case "http":
                refusal = self._refusal(scope)
                app = self._shell if self._path(scope) in _DOCUMENT else self._app
                await (refusal or app)(scope, receive, send)
            case "websocket":
                await self._stream(scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        path = self._path(scope)
        who = None if path is None else _EXACT.get(path)
        if who is None and path is not None:
            who = next((each for start, each in _BELOW.items() if path.startswith(start)), None)
        if path is None or who is None or (who is _For.SIGN_IN and self._admission is None):
            return self._not_found
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Method not allowed\n", 405, {"allow": "GET, HEAD"})
        if who is _For.READERS and self._admission is not None:
            refusal = self._admission(scope, path)
            if refusal is not None:
                return refusal
        return self._redirection(path, scope["query_string"].decode("latin-1"))

    def _redirection(self, path: str, query: str) -> Response | None:
        """A redirect to the page's path. The links on the page are relative to this path."""
        there = moved(query) if path in ("", "/") else None
        if there is None and path in ("", f"/{FIRST}"):
            there = f"?{query}" if query else ""
        if there is None or not (self._base or path):
            return None
        return RedirectResponse(f"{self._base}/{there}", 307)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._path(scope) != STREAM or (
            self._admission is not None and self._admission(scope, STREAM) is not None
        ):
            await _close(receive, send, _VIOLATION)
            return
        peer = scope["client"][0] if scope.get("client") else ""
        if self._open.total() >= self._most or self._open[peer] >= self._max_of_one:
            await _close(receive, send, _TRY_AGAIN_LATER)
            return
        self._open[peer] += 1
        try:
            await self._app(_same_origin(scope), receive, send)
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]

    def _path(self, scope: Scope) -> str | None:
        path: str = scope["path"]
        if path == self._base or path.startswith(f"{self._base}/"):
            return path[len(self._base) :]
        return None


def _same_origin(scope: Scope) -> Scope:
    """Set Host to the host of Origin, which was already checked.

    Behind some proxies, Host and Origin differ. Streamlit would then ask a server on the internet
    for this machine's address.
    """
    origin = Headers(scope=scope).get("origin")
    if origin is None:
        return scope
    changed = MutableHeaders(raw=[*scope["headers"]])
    changed["host"] = urlparse(origin).netloc
    return {**scope, "headers": changed.raw}


async def _close(receive: Receive, send: Send, code: int) -> None:
    await receive()  # `websocket.connect`
    message: Message = {"type": "websocket.close", "code": code, "reason": ""}
    await send(message)
