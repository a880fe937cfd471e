"""OTLP over gRPC: the Export method of the trace and metrics services.

The methods take bytes, not decoded messages: both transports then read a message in one
place, off the event loop, and a malformed one is INVALID_ARGUMENT instead of gRPC's own
INTERNAL, which senders take for our failure.

Source: OpenTelemetry protocol specification, "OTLP/gRPC".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.bearer import Tokens
from collector.counters import Counters
from collector.errors import IntakeError, ListenError
from collector.hosting import listen
from collector.intake import Intake
from collector.signals import SIGNALS, Signal
from collector.tls import Tls

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger(__name__)


class GrpcReceiver:
    """A gRPC server on one port.

    Args:
        host: address to listen on.
        port: 0 for a free one.
        option: what the user sets to choose another port, for the error.
        max_body_bytes: of a message, decompressed.
        tokens: who may send; None for anybody.
        tls: None for plaintext.
    """

    def __init__(
        self,
        intake: Intake,
        counters: Counters,
        *,
        host: str,
        port: int,
        option: str,
        max_body_bytes: int,
        tokens: Tokens | None,
        tls: Tls | None,
    ) -> None:
        self._intake = intake
        self._counters = counters
        self._host = host
        self._option = option
        self._max_body_bytes = max_body_bytes
        self._tokens = tokens
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self.port = port

    async def start(self) -> None:
        """Listen; afterwards `port` is the real one."""
        if self.port:
            # gRPC hides why it cannot bind; a socket of our own says it.
            listen(self._host, self.port, self._option).close()
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._max_body_bytes),
                # Two collectors on one port would each get half of the telemetry.
                ("grpc.so_reuseport", 0),
            ]
        )
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    signal.grpc_service,
                    {"Export": grpc.unary_unary_rpc_method_handler(self._export(signal))},
                )
                for signal in SIGNALS
            ]
        )
        bracketed = f"[{self._host}]" if ":" in self._host else self._host
        where = f"{bracketed}:{self.port}"
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(where)
            else:
                self.port = server.add_secure_port(where, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {where}; choose another with {self._option}"
            ) from error
        await server.start()
        self._server = server

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, finish what is under way for up to `grace_s`."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    def _export(self, signal: Signal) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def export(body: bytes, context: Any) -> bytes:
            try:
                if self._tokens is not None:
                    self._tokens.check(_metadata(context).get("authorization"))
                answer = await self._intake.receive(signal, body, peer=_address(context.peer()))
            except IntakeError as error:
                self._counters.message("grpc", signal, error.result)
                code, metadata = _CODES[error.rpc_code], _details(error)
                await context.abort(code, str(error), metadata)
                raise  # not reached: abort raises
            except Exception:  # a defect of ours: this sender hears of it, the next is served
                _log.exception("a message of %s could not be processed", signal.name)
                self._counters.message("grpc", signal, "failed")
                await context.abort(
                    grpc.StatusCode.INTERNAL, "internal error; see the collector's log"
                )
                raise
            self._counters.message("grpc", signal, "acknowledged")
            return answer.SerializeToString()

        return export


def _address(peer: str) -> str:
    """The address in gRPC's `ipv4:127.0.0.1:4321` or `ipv6:%5B::1%5D:4321`."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")


def _metadata(context: Any) -> dict[str, str]:
    return dict(context.invocation_metadata() or ())


def _details(error: IntakeError) -> tuple[tuple[str, bytes], ...]:
    status = Status(code=error.rpc_code, message=str(error))
    if error.retry_after_s is None:
        return (("grpc-status-details-bin", status.SerializeToString()),)
    retry = RetryInfo(retry_delay=Duration(seconds=error.retry_after_s))
    packed = AnyMessage()
    packed.Pack(retry)
    status.details.append(packed)
    return (
        ("grpc-status-details-bin", status.SerializeToString()),
        # Where OpenTelemetry's Python exporter looks for it.
        ("google.rpc.retryinfo-bin", retry.SerializeToString()),
    )
