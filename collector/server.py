"""The collector as a whole: both OTLP receivers before one sink."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from collector.counters import Counters
from collector.errors import ForbiddenError
from collector.intake import Intake
from collector.limits.sender_limits import Limits
from collector.listen.asgi_server import AsgiHost
from collector.listen.bearer_tokens import Tokens
from collector.listen.connections import ConnectionLimits, within_descriptors
from collector.listen.host_check import AllowedHosts, HostGate
from collector.listen.tls import Tls
from collector.otlp.grpc_receiver import GrpcReceiver
from collector.otlp.http_receiver import http_app
from collector.otlp.message_reader import Reading, ReadingApart, ReadingHere
from collector.rows.age_limit import Ages
from collector.rows.engine_start_limits import StartLimits
from collector.rows.pricing import Priced
from collector.rows.sender_clocks import Clocks
from collector.signals import SIGNALS
from collector.sink import Forward, GpuListener, InFlightListener, Listener, Sink
from cost.pricing import Pricing
from telemetry.corroborated_time import CorroboratedClock
from telemetry.tasks import Task

GRPC_PORT: Final = 4317
HTTP_PORT: Final = 4318
GRACE_S: Final = 5.0
ANSWER_S: Final = 1.0
"""To send the last answers in."""


class Collector:
    """Receives OTLP over gRPC and HTTP and acknowledges what the sink has committed.

    Args:
        sink: keeps the rows.
        listeners: hear of the rows once they are kept.
        counters: what became of everything; its own where none is given.
        host: address of both receivers.
        grpc_port: 0 for a free one.
        http_port: 0 for a free one.
        limits: how much is taken at once, and a second.
        tokens: who may send; None for anybody.
        hosts: the names under which OTLP/HTTP may be addressed. Browsers do not speak gRPC.
        tls: of both receivers; None for plaintext.
        reading: how messages are read; None for in this process.
        clock: the present; the system clock, as far as it is corroborated, where none is given.
        clock_unix_ns: in its place, a clock that never jumps.
        forward: given each message that is kept, as it came.
        gpu_listeners: hear of samples of GPUs once they are kept.
        in_flight_listeners: hear of reports of requests in flight once they are kept.
        pricing: gives requests their cost; None for none.
        keep_ns: how long rows are kept, so that what is older is refused; None for ever.
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
        limits: Limits = Limits(),  # noqa: B008 - frozen
        tokens: Tokens | None = None,
        hosts: AllowedHosts = AllowedHosts(),  # noqa: B008 - frozen
        tls: Tls | None = None,
        reading: Reading | None = None,
        clock: CorroboratedClock | None = None,
        clock_unix_ns: Callable[[], int] | None = None,
        forward: Forward | None = None,
        gpu_listeners: Sequence[GpuListener] = (),
        in_flight_listeners: Sequence[InFlightListener] = (),
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
        self.clocks = Clocks(own)
        self.counters = counters or Counters()
        self._listening = False
        self._reading = reading or ReadingHere()
        self._intake = Intake(
            sink,
            listeners,
            self.counters,
            own,
            limits,
            self._reading,
            forward=forward,
            gpu_listeners=gpu_listeners,
            in_flight_listeners=in_flight_listeners,
            ahead_ns=lambda: max(0, own.ahead_ns),
            steps=[
                self.clocks,
                Ages(keep_ns, lambda: own.deletable_unix_ns),
                StartLimits(),
                *([] if pricing is None else [Priced(pricing)]),
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
        """Whether it listens, and the store is not known to refuse."""
        return self._listening and self._intake.keeping

    @property
    def tasks(self) -> list[Task]:
        """The parts of it that may fail by themselves."""
        reading = [self._reading.task] if isinstance(self._reading, ReadingApart) else []
        receiver = Task("otlp http receiver", vital=True, alive=lambda: self._http.serving)
        return [self._intake.enriching, receiver, *reading]

    @property
    def grpc_port(self) -> int:
        """The port of OTLP/gRPC; the real one once started."""
        return self._grpc.port

    @property
    def http_port(self) -> int:
        """The port of OTLP/HTTP; the real one once started."""
        return self._http.port

    def _forbidden(self, path: str) -> None:
        for signal in SIGNALS:
            if signal.http_path == path:
                self.counters.message("http", signal, ForbiddenError.result)

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
        self._listening = True

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Take nothing new and answer what is under way: within `grace_s`, or as retryable."""
        self._listening = False
        await self._intake.stop(grace_s)
        # All calls have their answers; what remains is to send them.
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
