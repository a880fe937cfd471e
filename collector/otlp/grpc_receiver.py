"""Receive OTLP over gRPC, through the Export methods of the three services.

The methods receive encoded bytes, because gRPC itself would answer a malformed message with
INTERNAL. The methods are declared as streaming methods, so that a call is authenticated and memory
is reserved before its message is read. Until then, gRPC accepts at most 64 KiB, the size of the
flow-control window.

Source: OpenTelemetry protocol specification, "OTLP/gRPC".
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.counters import Counters
from collector.errors import IntakeError, ListenError, TooLargeError
from collector.intake import Intake
from collector.limits.sender_limits import CollectorLimits, sender
from collector.listen.asgi_server import listen
from collector.listen.bearer_tokens import BearerTokens
from collector.listen.tls import Tls
from collector.signals import SIGNALS, Signal

HANDSHAKE_S: Final = 10
IDLE_S: Final = 120
READ_S: Final = 10.0
"""Time limit for a message to arrive. Exporters time out after 10 s by default
(OTEL_EXPORTER_OTLP_TIMEOUT)."""
MAX_READS: Final = 8
"""Maximum messages that arrive at the same time. Each message reserves the maximum of 16 MiB,
because gRPC does not report the message's length. Together, the messages reserve half of the memory
limit."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger(__name__)


class GrpcReceiver:
    """A gRPC server on one port.

    Args:
        option: the command-line option that sets the port, for error messages.
        tokens: the valid tokens, or None if no token is required.
    """

    def __init__(
        self,
        intake: Intake,
        counters: Counters,
        *,
        host: str,
        port: int,
        option: str,
        limits: CollectorLimits,
        tokens: BearerTokens | None,
        tls: Tls | None,
    ) -> None:
        self._intake = intake
        self._counters = counters
        self._host = host
        self._option = option
        self._limits = limits
        self._reads = _Reads(limits)
        self._tokens = tokens
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self.port = port

    async def start(self) -> None:
        """Start to listen. Afterwards, `port` is the port in use."""
        if self.port:
            # A plain socket reports why binding fails, but gRPC does not.
            listen(self._host, self.port, self._option).close()
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._limits.max_body_bytes),
                # If two collectors reused one port, each would receive half of the telemetry.
                ("grpc.so_reuseport", 0),
                *_options(self._limits),
            ]
        )
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    signal.grpc_service,
                    {"Export": grpc.stream_unary_rpc_method_handler(self._export(signal))},
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
        """Accept no new calls, and wait up to `grace_s` for current calls."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    def _export(self, signal: Signal) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def export(_: Any, context: Any) -> bytes:
            try:
                if self._tokens is not None:
                    self._tokens.check(_metadata(context).get("authorization"))
                peer = sender(_address(context.peer()))
                with self._intake.enter(peer) as reservation:
                    async with self._intake.arriving(READ_S), self._reads.turn(peer):
                        reservation.grow(self._limits.max_body_bytes)
                        body = await context.read()
                    if body is grpc.aio.EOF:
                        # gRPC itself ends a call whose message is too large.
                        most = self._limits.max_body_bytes
                        raise TooLargeError(
                            f"no message, or a message above {most} bytes; send smaller batches"
                        )
                    answer = await self._intake.receive(
                        signal, body, peer=peer, reservation=reservation
                    )
            except IntakeError as error:
                self._counters.message("grpc", signal, error.result)
                code, metadata = _CODES[error.rpc_code], _details(error)
                await context.abort(code, str(error), metadata)
                raise  # not reached: abort raises
            except Exception:  # a defect
                _log.exception("a message of %s could not be processed", signal.name)
                self._counters.message("grpc", signal, "failed")
                await context.abort(
                    grpc.StatusCode.INTERNAL, "internal error; see the collector's log"
                )
                raise
            self._counters.message("grpc", signal, "acknowledged")
            return answer.SerializeToString()

        return export


class _Reads:
    def __init__(self, limits: CollectorLimits) -> None:
        of_room = limits.max_waiting_bytes // (2 * limits.max_body_bytes)
        self._each = max(1, min(MAX_READS, of_room) // 2)
        self._all = asyncio.Semaphore(max(1, min(MAX_READS, of_room)))
        self._peers: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[None]:
        """Wait until the next message of this sender may be read. A sender may use at most half of
        the concurrent reads."""
        own = self._peers.setdefault(peer, asyncio.Semaphore(self._each))
        self._users[peer] += 1
        try:
            async with own, self._all:
                yield
        finally:
            self._users[peer] -= 1
            if not self._users[peer]:
                del self._users[peer], self._peers[peer]


def _options(limits: CollectorLimits) -> list[tuple[str, int]]:
    return [
        # By default, the flow-control window of a call that is not read yet grows to megabytes. 60
        # calls with 15 MB each used 896 MB by default, and 40 MB with this option.
        ("grpc.http2.bdp_probe", 0),
        # This limits concurrent calls per connection. A gateway makes about ten.
        ("grpc.max_concurrent_streams", 128),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.absolute_max_metadata_size", 32 * 1024),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        # This is the time limit for TLS and the first frames. gRPC's default is 120 s.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
        # This is the time limit without a call. Exporters send at least once a minute.
        ("grpc.max_connection_idle_ms", IDLE_S * 1000),
    ]


def _address(peer: str) -> str:
    """The IP address in a peer's name. In gRPC, such a name is `ipv4:127.0.0.1:4321` or
    `ipv6:%5B::1%5D:4321`."""
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
        # OpenTelemetry's Python exporter reads the pause from this detail.
        ("google.rpc.retryinfo-bin", retry.SerializeToString()),
    )
