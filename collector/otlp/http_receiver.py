"""Receive OTLP over HTTP: POST /v1/traces, /v1/metrics and /v1/logs, as protobuf or JSON.

Source: OpenTelemetry protocol specification, "OTLP/HTTP".
"""

import logging
from collections.abc import Awaitable, Callable

from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from collector.counters import Counters
from collector.errors import (
    IntakeError,
    MalformedError,
    TooLargeError,
    UnauthenticatedError,
    UnsupportedError,
)
from collector.intake import Intake
from collector.limits.sender_limits import sender
from collector.listen.bearer_tokens import CHALLENGE, BearerTokens
from collector.otlp.http_body import BODY_S, encoding_of, read_body
from collector.otlp.json_mapping import to_json
from collector.signals import SIGNALS, Signal

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_INTERNAL = 13

_log = logging.getLogger(__name__)


def http_app(
    intake: Intake, counters: Counters, max_body_bytes: int, tokens: BearerTokens | None = None
) -> Starlette:
    """The OTLP/HTTP receiver as an ASGI application."""
    return Starlette(
        routes=[
            Route(
                signal.http_path,
                _endpoint(signal, intake, counters, max_body_bytes, tokens),
                methods=["POST"],
            )
            for signal in SIGNALS
        ],
        exception_handlers={404: _not_found},
    )


async def _not_found(_request: Request, _error: Exception) -> Response:
    paths = ", ".join(signal.http_path for signal in SIGNALS)
    return PlainTextResponse(f"Not found. POST OTLP/HTTP to {paths}\n", 404)


def _endpoint(
    signal: Signal,
    intake: Intake,
    counters: Counters,
    max_body_bytes: int,
    tokens: BearerTokens | None,
) -> Callable[[Request], Awaitable[Response]]:
    async def export(request: Request) -> Response:
        kind = _content_type(request)
        try:
            if tokens is not None:
                tokens.check(request.headers.get("authorization"))
            if kind not in (_PROTOBUF, _JSON):
                raise UnsupportedError(
                    f"Content-Type {kind!r:.80} is not supported: send {_PROTOBUF} or {_JSON}"
                )
            encoding = encoding_of(request.headers.get("content-encoding", ""))
            _declared(request, max_body_bytes)
            peer = sender(request.client.host if request.client else "")
            with intake.enter(peer) as reservation:
                try:
                    async with intake.arriving(BODY_S) as timeout:
                        body = await read_body(
                            request.stream(), max_body_bytes, reservation, timeout
                        )
                except ClientDisconnect as error:
                    raise MalformedError(
                        "the sender disconnected before the end of the body"
                    ) from error
                answer = await intake.receive(
                    signal,
                    body,
                    peer=peer,
                    json=kind == _JSON,
                    encoding=encoding,
                    reservation=reservation,
                )
        except IntakeError as error:
            counters.message("http", signal, error.result)
            return _refusal(error, kind)
        except Exception:  # a defect
            _log.exception("a message of %s could not be processed", signal.name)
            counters.message("http", signal, "failed")
            status = Status(code=_INTERNAL, message="internal error; see the collector's log")
            return _response(status, kind, 500)
        counters.message("http", signal, "acknowledged")
        return _response(answer, kind)

    return export


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _declared(request: Request, max_body_bytes: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_body_bytes:
        raise TooLargeError(f"{declared} bytes exceed the limit of {max_body_bytes}")


def _refusal(error: IntakeError, kind: str) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = CHALLENGE
    status = Status(code=error.rpc_code, message=str(error))
    return _response(status, kind, error.http_status, headers)


def _response(
    message: Message, kind: str, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    if kind == _JSON:
        return Response(to_json(message), status, headers, _JSON)
    return Response(message.SerializeToString(), status, headers, _PROTOBUF)
