"""OTLP over HTTP: POST /v1/traces and /v1/metrics, protobuf, gzip welcome.

Source: OpenTelemetry protocol specification, "OTLP/HTTP".
"""

import logging
from collections.abc import Awaitable, Callable

from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from collector.bodies import read_body
from collector.counters import Counters
from collector.errors import IntakeError, MalformedError, TooLargeError, UnsupportedError
from collector.intake import Intake
from collector.signals import SIGNALS, Signal

_PROTOBUF = "application/x-protobuf"
_INTERNAL = 13

_log = logging.getLogger(__name__)


def http_app(intake: Intake, counters: Counters, max_body_bytes: int) -> Starlette:
    """The receiver as an ASGI application."""
    return Starlette(
        routes=[
            Route(
                signal.http_path,
                _endpoint(signal, intake, counters, max_body_bytes),
                methods=["POST"],
            )
            for signal in SIGNALS
        ]
    )


def _endpoint(
    signal: Signal, intake: Intake, counters: Counters, max_body_bytes: int
) -> Callable[[Request], Awaitable[Response]]:
    async def export(request: Request) -> Response:
        try:
            answer = await intake.receive(signal, await _body(request, max_body_bytes))
        except IntakeError as error:
            counters.message("http", signal, error.result)
            return _refusal(error)
        except Exception:  # a defect of ours: this sender hears of it, the next is served
            _log.exception("a message of %s could not be processed", signal.name)
            counters.message("http", signal, "failed")
            status = Status(code=_INTERNAL, message="internal error; see the collector's log")
            return Response(status.SerializeToString(), 500, media_type=_PROTOBUF)
        counters.message("http", signal, "acknowledged")
        return Response(answer, media_type=_PROTOBUF)

    return export


async def _body(request: Request, max_body_bytes: int) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _PROTOBUF:
        raise UnsupportedError(f"Content-Type {kind!r:.80} is not spoken here: send {_PROTOBUF}")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_body_bytes:
        raise TooLargeError(f"{declared} bytes exceed the limit of {max_body_bytes}")
    encoding = request.headers.get("content-encoding", "")
    try:
        return await read_body(request.stream(), encoding, max_body_bytes)
    except ClientDisconnect as error:
        raise MalformedError("the sender hung up before the end of the body") from error


def _refusal(error: IntakeError) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    status = Status(code=error.rpc_code, message=str(error))
    return Response(status.SerializeToString(), error.http_status, headers, _PROTOBUF)
