"""Problem documents, the errors of the API. Source: RFC 9457."""

import json
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE: Final = "application/problem+json"


def problem(status: int, detail: str, **members: Any) -> dict[str, Any]:
    """A problem document, without members whose value is None."""
    found = {key: each for key, each in members.items() if each is not None}
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **found}


def problem_response(about: dict[str, Any], retry_after_s: int | None = None) -> Response:
    """The response for a problem document."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Response(json.dumps(about), about["status"], headers, MEDIA_TYPE)


class ProblemGate:
    """Convert plain-text errors of the wrapped ASGI application to problem documents.

    The host check, the token check and the router return plain-text errors. Only errors of paths
    with `prefix` are converted.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the wrapped application, and convert an error response."""
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        text = b""

        async def convert(message: Message) -> None:
            nonlocal start, text
            if message["type"] == "http.response.start" and _is_plain_error(message):
                start = message
            elif start is None:
                await send(message)
            else:
                text += message.get("body", b"")
                if not message.get("more_body", False):
                    await self._send(start, text.decode().strip(), send)

        await self._app(scope, receive, convert)

    async def _send(self, start: Message, text: str, send: Send) -> None:
        body = json.dumps(problem(start["status"], text)).encode()
        headers = MutableHeaders(raw=list(start["headers"]))
        headers["content-type"] = MEDIA_TYPE
        headers["content-length"] = str(len(body))
        await send({**start, "headers": headers.raw})
        await send({"type": "http.response.body", "body": body})


def _is_plain_error(message: Message) -> bool:
    kind = Headers(raw=message["headers"]).get("content-type", "")
    return message["status"] >= HTTPStatus.BAD_REQUEST and kind.startswith("text/plain")
