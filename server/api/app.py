"""The JSON API as an ASGI application: `/api/v1/QUESTION`."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api.limits import PREFIX
from server.api.problem import problem, problem_response
from server.api.readers import NotAReader, Readers
from server.api.worker_pool import TooLongError, WorkerEndedError, WorkerPool, WorkersBusyError

OPENAPI: Final = "openapi.json"
BASE: Final = f"{PREFIX}v1"
RETRY_S: Final = 1
"""The value of `Retry-After` in seconds while all workers are busy."""
_MAX_FIELDS: Final = 256
_LINES: Final = "application/x-ndjson"


def api_app(pool: WorkerPool, readers: Readers | None = None) -> Starlette:
    """The ASGI application. Without `readers`, each token may read everything."""
    questions = _Questions(pool, readers or Readers())
    app = Starlette(
        routes=[Route(f"{BASE}/{{name}}", questions, methods=["GET"])],
        exception_handlers={
            HTTPStatus.NOT_FOUND.value: _not_found,
            HTTPStatus.METHOD_NOT_ALLOWED.value: _not_allowed,
        },
    )
    app.router.redirect_slashes = False
    return app


def with_api_paths(metrics: ASGIApp, api: ASGIApp) -> ASGIApp:
    """Pass requests for the API to `api`, and all other requests to `metrics`."""

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        of_api = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (api if of_api else metrics)(scope, receive, send)

    return choose


class _Questions:
    def __init__(self, pool: WorkerPool, readers: Readers) -> None:
        self._pool = pool
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        query: bytes = scope["query_string"]
        most = self._pool.limits.query_bytes
        if len(query) > most:
            await _refuse(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                f"the query string has {len(query):,} bytes; allowed: at most {most:,}",
            )(scope, receive, send)
            return
        try:
            message = {**_message(request, query), "reader": self._readers.of(scope)}
        except NotAReader as refused:
            await _refuse(HTTPStatus.FORBIDDEN, str(refused))(scope, receive, send)
            return
        except ValueError:
            await _refuse(
                HTTPStatus.BAD_REQUEST,
                "the query string is malformed; allowed: NAME=VALUE&NAME=VALUE, percent-encoded"
                " UTF-8",
            )(scope, receive, send)
            return
        asking = asyncio.create_task(self._answer(message, scope, receive, send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            asking.cancel()  # the client may have disconnected
            await asyncio.gather(asking, leaving, return_exceptions=True)
        if not asking.cancelled() and (error := asking.exception()) is not None:
            raise error

    async def _answer(
        self, message: Mapping[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        response: Response
        try:
            async with self._pool.reply_to(message) as reply:
                head = reply.head
                headers = {"Cache-Control": "no-store"}
                response = Response(reply.body, head["status"], headers, head["type"])
                await response(scope, receive, send)
                return
        except WorkersBusyError as error:
            about = problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            response = problem_response(about, RETRY_S)
        except TooLongError as error:
            response = _refuse(HTTPStatus.GATEWAY_TIMEOUT, str(error))
        except WorkerEndedError as error:
            response = _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        await response(scope, receive, send)


def _message(request: Request, query: bytes) -> Mapping[str, Any]:
    name = request.path_params["name"]
    if name == OPENAPI and not query:
        return {"ask": "openapi"}
    return {
        "ask": "question",
        "name": name,
        "parameters": parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        ),
        "lines": _LINES in request.headers.get("accept", ""),
    }


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _not_found(request: Request, _error: Exception) -> Response:
    path = request.url.path[:80]
    return _refuse(HTTPStatus.NOT_FOUND, f"nothing is at {path}; {BASE}/{OPENAPI} lists the paths")


async def _not_allowed(request: Request, _error: Exception) -> Response:
    response = _refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method[:80]}; allowed: GET, HEAD")
    response.headers["Allow"] = "GET, HEAD"
    return response


def _refuse(status: HTTPStatus, detail: str) -> Response:
    return problem_response(problem(status, detail))
