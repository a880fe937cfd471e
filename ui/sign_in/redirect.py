"""Redirect the reader to the requested page after sign-in.

Streamlit redirects to the first page, without the query that contains the view. A cookie keeps the
query for a few minutes. The cookie contains no URL, so it cannot redirect to another site.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.frame.pages import BY_KEY

FAILED: Final = "sign_in"
"""The query parameter that marks a failed sign-in."""
COOKIE: Final = "tailspan_way_back"
USER_COOKIE: Final = "_streamlit_user="
COOKIE_S: Final = 900
LONGEST: Final = 2_000
_REDIRECT, _BAD = 302, 400

Change = Callable[[int, MutableHeaders], int]
"""Takes a response's status and headers. It may change the headers, and returns the new status."""


class ReturnToPage:
    """Middleware around Streamlit that returns the reader to the requested page.

    `url` is the explorer's public URL, without a trailing slash.
    """

    def __init__(self, app: ASGIApp, url: str) -> None:
        self._app = app
        self._url = url
        self._path = urlsplit(url).path
        self._attributes = f"; Path={self._path or '/'}; HttpOnly; SameSite=Lax"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle requests that begin or end a sign-in, and forward all other requests."""
        path = scope.get("path") if scope["type"] == "http" else None
        if path in (f"{self._path}/auth/login", f"{self._path}/auth/logout"):
            send = self._changing(send, self._leaving(Headers(scope=scope)))
        elif path == f"{self._path}/oauth2callback":
            send = self._changing(send, self._coming(scope))
        await self._app(scope, receive, send)

    def _leaving(self, request_headers: Headers) -> Change:
        query = self._query_of_left_page(request_headers.get("referer", ""))

        def change(status: int, headers: MutableHeaders) -> int:
            if status >= _BAD:  # the provider does not respond
                headers["location"] = self._address(query, failed=True)
                return _REDIRECT
            if headers.get("location", "").rstrip("/") == self._path:  # the reader signed out
                headers["location"] = self._address(query, failed=False)
            headers.append("set-cookie", self._cookie(quote(query, safe=""), COOKIE_S))
            return status

        return change

    def _query_of_left_page(self, referer: str) -> str:
        """The query of the page that the reader left. The parameter `page` names the page."""
        where, _, query = referer.partition("?")
        page = where.removeprefix(f"{self._url}/")
        if where.rstrip("/") == self._url:
            return _without_failure(query)
        if page in BY_KEY:
            return _without_failure("&".join(filter(None, (f"page={page}", query))))
        return ""

    def _coming(self, scope: Scope) -> Change:
        cookies = cookie_parser(Headers(scope=scope).get("cookie", ""))
        query = _without_failure(unquote(cookies.get(COOKIE, "")))
        parameters = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        returned = not {"code", "error"}.isdisjoint(parameters)  # false after a sign-out

        def change(status: int, headers: MutableHeaders) -> int:
            if status == _REDIRECT:
                cookies = headers.getlist("set-cookie")
                known = any(
                    each.startswith(USER_COOKIE) and "Max-Age=0" not in each for each in cookies
                )
                headers["location"] = self._address(query, failed=returned and not known)
                headers.append("set-cookie", self._cookie("", 0))
            return status

        return change

    def _changing(self, send: Send, change: Change) -> Send:
        emptied = False

        async def send_changed(message: Message) -> None:
            nonlocal emptied
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=[*message["headers"]])
                status = change(message["status"], headers)
                emptied = status != message["status"]
                if emptied:
                    headers["content-length"] = "0"
                message = {**message, "status": status, "headers": self._secured(headers).raw}
            elif emptied:
                message = {"type": message["type"], "body": b""}
            await send(message)

        return send_changed

    def _secured(self, headers: MutableHeaders) -> MutableHeaders:
        """Mark Streamlit's cookies as secure, because Streamlit does not detect a proxy's HTTPS."""
        if not self._url.startswith("https:"):
            return headers
        marked = [
            (name, value + b"; Secure" if name == b"set-cookie" else value)
            for name, value in headers.raw
        ]
        return MutableHeaders(raw=marked)

    def _cookie(self, value: str, max_age_s: int) -> str:
        return f"{COOKIE}={value}; Max-Age={max_age_s}{self._attributes}"

    def _address(self, query: str, *, failed: bool) -> str:
        parameters = "&".join(
            each for each in (query, urlencode({FAILED: "failed"}) * failed) if each
        )
        return f"{self._url}/?{parameters}" if parameters else f"{self._url}/"


def _without_failure(query: str) -> str:
    """The first `LONGEST` characters of the query, without the parameter of a failed sign-in."""
    return urlencode(
        [pair for pair in parse_qsl(query[:LONGEST]) if pair[0] != FAILED], quote_via=quote
    )
