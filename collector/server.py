"""Run the OTLP receivers for gRPC and HTTP, and the intake that both receivers use."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from collector.counters import Counters
from collector.errors import ForbiddenError
from collector.intake import Intake
from collector.limits.sender_limits import CollectorLimits
from collector.listen.asgi_server import AsgiHost
from collector.listen.bearer_tokens import BearerTokens
from collector.listen.connections import ConnectionLimits, within_descriptors
from collector.listen.host_check import AllowedHosts, HostGate
from collector.listen.tls import Tls
from collector.otlp.grpc_receiver import GrpcReceiver
from collector.otlp.http_receiver import http_app
from collector.otlp.layout_reader import LayoutReader
from collector.otlp.message_reader import LocalReader, MessageReader, ProcessReader
from collector.rows.age_limit import AgeLimit
from collector.rows.engine_start_limits import EngineStartLimits
from collector.rows.operation_limits import OperationLimits
from collector.rows.pricing import MessagePricing
from collector.rows.sender_clocks import SenderClocks
from collector.signals import SIGNALS
from collector.sink import Forward, GpuListener, InFlightListener, Listener, ProbeListener, Sink
from cost.pricing import Pricing
from telemetry.corroborated_time import CorroboratedClock
from telemetry.tasks import Task

GRPC_PORT: Final = 4317
HTTP_PORT: Final = 4318
GRACE_S: Final = 5.0
ANSWER_S: Final = 1.0
"""Time for sending the remaining responses, in addition to `grace_s`."""


class Collector:
    """Receives OTLP over gRPC and HTTP, and acknowledges a message after its rows are committed.

    Args:
        listeners: called after the commit.
        tokens: the accepted tokens, or None if no token is required.
        hosts: the allowed host names of requests to OTLP/HTTP.
        reading: the reader of messages. If None, messages are read in this process.
        clock: Tailspan's clock. If None, a new `CorroboratedClock` is used.
        clock_unix_ns: replaces the system clock if `clock` is None. It must never jump.
        forward: receives the unchanged bytes of each stored message.
        keep_ns: the retention. Older rows are refused. If None, rows of any age are accepted.
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
        limits: CollectorLimits = CollectorLimits(),  # noqa: B008 - frozen
        tokens: BearerTokens | None = None,
        hosts: AllowedHosts = AllowedHosts(),  # noqa: B008 - frozen
        tls: Tls | None = None,
        reading: MessageReader | None = None,
        clock: CorroboratedClock | None = None,
        clock_unix_ns: Callable[[], int] | None = None,
        forward: Forward | None = None,
        gpu_listeners: Sequence[GpuListener] = (),
        in_flight_listeners: Sequence[InFlightListener] = (),
        probe_listeners: Sequence[ProbeListener] = (),
        pricing: Pricing | None = None,
        keep_ns: int | None = None,
    ) -> None:
        connections = within_descriptors(limits.max_connections, ports=2)
        limits = replace(
            limits,
            max_connections=connections,
            max_peer_connections=min(limits.max_peer_connections, connections),
        )
        if clock is None:
            several = () if clock_unix_ns is None else (clock_unix_ns, clock_unix_ns)
            clock = CorroboratedClock(*several)
        own = clock
        self.clocks = SenderClocks(own)
        self.counters = counters or Counters()
        self._listening = False
        self._reading = reading or LocalReader()
        self._intake = Intake(
            sink,
            listeners,
            self.counters,
            own,
            limits,
            LayoutReader(self._reading),
            forward=forward,
            gpu_listeners=gpu_listeners,
            in_flight_listeners=in_flight_listeners,
            probe_listeners=probe_listeners,
            ahead_ns=lambda: max(0, own.ahead_ns),
            steps=[
                self.clocks,
                AgeLimit(keep_ns, lambda: own.deletable_unix_ns),
                EngineStartLimits(),
                OperationLimits(),
                *([] if pricing is None else [MessagePricing(pricing)]),
            ],
        )
        self._grpc = GrpcReceiver(
            self._intake,
            self.counters,
            host=host,
            port=grpc_port,
            option="--grpc-port",
            limits=limits,
            tokens=tokens,
            tls=tls,
        )
        self._http = AsgiHost(
            HostGate(
                http_app(self._intake, self.counters, limits.max_body_bytes, tokens),
                hosts,
                refused=self._forbidden,
            ),
            host=host,
            port=http_port,
            option="--http-port",
            tls=tls,
            limits=ConnectionLimits(limits.max_connections, limits.max_peer_connections),
        )

    @property
    def ready(self) -> bool:
        """Whether the collector is listening and the store is available."""
        return self._listening and self._intake.store_available

    @property
    def tasks(self) -> list[Task]:
        """The health of each component that can fail while the other components work."""
        reading = [self._reading.task] if isinstance(self._reading, ProcessReader) else []
        receiver = Task("otlp http receiver", vital=True, alive=lambda: self._http.serving)
        return [self._intake.enriching, receiver, *reading]

    @property
    def grpc_port(self) -> int:
        """The port of OTLP/gRPC. After `start`, it is the port in use."""
        return self._grpc.port

    @property
    def http_port(self) -> int:
        """The port of OTLP/HTTP. After `start`, it is the port in use."""
        return self._http.port

    def _forbidden(self, path: str) -> None:
        for signal in SIGNALS:
            if signal.http_path == path:
                self.counters.message("http", signal, ForbiddenError.result)

    async def start(self) -> None:
        """Start to listen on both ports, or on none.

        Raises:
            ListenError: a port is not available.
        """
        await self._grpc.start()
        try:
            await self._http.start()
        except BaseException:
            await self._grpc.stop(0)
            raise
        self._listening = True

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Accept no new messages, and answer current messages within `grace_s`."""
        self._listening = False
        await self._intake.stop(grace_s)
        # The last responses must still be sent.
        await asyncio.gather(self._grpc.stop(ANSWER_S), self._http.stop(ANSWER_S))

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
