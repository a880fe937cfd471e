"""The collector as a whole: both OTLP receivers before one sink."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from collector.counters import Counters
from collector.hosting import AsgiHost
from collector.intake import Intake
from collector.otlp_grpc import GrpcReceiver
from collector.otlp_http import http_app
from collector.sink import Listener, Sink

GRPC_PORT: Final = 4317
HTTP_PORT: Final = 4318
MAX_BODY_BYTES: Final = 16 * 2**20
MAX_WAITING_BYTES: Final = 256 * 2**20
GRACE_S: Final = 5.0


class Collector:
    """Receives OTLP over gRPC and HTTP and acknowledges what the sink has committed.

    Args:
        sink: keeps the rows.
        listeners: hear of the rows once they are kept.
        counters: what became of everything; its own where none is given.
        host: address of both receivers.
        grpc_port: 0 for a free one.
        http_port: 0 for a free one.
        max_body_bytes: of one message, decompressed.
        max_waiting_bytes: of all messages not yet answered.
        clock_unix_ns: the present.
    """

    def __init__(
        self,
        sink: Sink,
        listeners: Sequence[Listener] = (),
        *,
        counters: Counters | None = None,
        host: str = "127.0.0.1",
        grpc_port: int = GRPC_PORT,
        http_port: int = HTTP_PORT,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        clock_unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.counters = counters or Counters()
        self.ready = False
        self._intake = Intake(sink, listeners, self.counters, clock_unix_ns, max_waiting_bytes)
        self._grpc = GrpcReceiver(
            self._intake,
            self.counters,
            host=host,
            port=grpc_port,
            option="--grpc-port",
            max_body_bytes=max_body_bytes,
        )
        self._http = AsgiHost(
            http_app(self._intake, self.counters, max_body_bytes),
            host=host,
            port=http_port,
            option="--http-port",
        )

    @property
    def grpc_port(self) -> int:
        """The port of OTLP/gRPC; the real one once started."""
        return self._grpc.port

    @property
    def http_port(self) -> int:
        """The port of OTLP/HTTP; the real one once started."""
        return self._http.port

    async def start(self) -> None:
        """Listen on both ports.

        Raises:
            ListenError: one of them cannot be had; then neither is held.
        """
        await self._grpc.start()
        try:
            await self._http.start()
        except BaseException:
            await self._grpc.stop(0)
            raise
        self.ready = True

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Take nothing new, answer what is under way, and return when its rows are kept."""
        self.ready = False
        await self._grpc.stop(grace_s)
        await self._http.stop(grace_s)
        await self._intake.drained()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
