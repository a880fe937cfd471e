"""Send results to a collector by OTLP over HTTP. Probes never wait for the collector.

Retries follow `tailspan_vllm.export.retry`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from tailspan_vllm.export.destination import Destination, destination_of
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict, http_failure

from probe.connection import Timings
from probe.errors import MAX_ERROR_CHARS, PlanError, ProbeFailure
from probe.http_exchange import HttpRequest, Response, exchange
from probe.otlp_spans import message
from telemetry.printable import printable
from telemetry.probes import Probe

QUEUED: Final = 20_000
"""Maximum number of waiting results (about 20 MB). The queue is long enough for 100 endpoints,
every 30 s, for 100 minutes."""
MAX_IN_A_MESSAGE: Final = 512
"""Maximum number of results in a message. It is the default of OTEL_BSP_MAX_EXPORT_BATCH_SIZE."""
GATHER_S: Final = 1.0
"""Seconds to wait for more results before a message is sent."""


class ResultSender:
    """A bounded queue of results, and the task that sends them.

    Args:
        url: the collector's OTLP/HTTP address, without /v1/….
        environment: may contain OpenTelemetry's variables. Endpoints in it are ignored.
        report: called when the collector stops accepting results, and when it accepts them again.

    Raises:
        PlanError: a variable or a certificate cannot be used.
    """

    def __init__(
        self,
        url: str,
        region: str,
        environment: Mapping[str, str],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        complaints: list[str] = []
        self._to: Destination = destination_of(
            {
                **environment,
                "OTEL_EXPORTER_OTLP_ENDPOINT": url,
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "",  # it would override the url
            },
            "traces",
            "http/protobuf",
            complaints.append,
        )
        if complaints:
            raise PlanError(complaints[0])
        try:
            self._context = ssl.create_default_context(cafile=self._to.certificate)
            if self._to.client_certificate is not None:
                self._context.load_cert_chain(self._to.client_certificate, self._to.client_key)
        except OSError as error:  # includes ssl.SSLError
            raise PlanError(f"OTEL_EXPORTER_OTLP_CERTIFICATE: cannot be used: {error}") from error
        self._region, self._report = region, report
        self._queue: deque[Probe] = deque()
        self._backoff = Backoff()
        self.sent = 0
        self.dropped = 0
        """Results that the collector refused or the full queue dropped."""
        self.trouble: str | None = None

    @property
    def waiting(self) -> int:
        """The number of unsent results."""
        return len(self._queue)

    @property
    def url(self) -> str:
        """The address for messages, without a password."""
        return self._to.shown

    def offer(self, result: Probe) -> None:
        """Queue a result. If the queue is full, the oldest result is dropped."""
        if len(self._queue) >= QUEUED:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(result)

    async def run(self) -> None:
        """Send results until this task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(GATHER_S)
            while self._queue and self._backoff.due(loop.time()):
                await self.send_some()

    async def flush(self, within_s: float) -> None:
        """Try to send each waiting result once, for at most `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s):
                while self._queue and await self.send_some():
                    pass
        except TimeoutError:
            self.trouble = f"no answer within {within_s:g} s"

    async def send_some(self) -> bool:
        """Send the oldest results in one message. Return False if they must be sent again."""
        batch = [self._queue[place] for place in range(min(len(self._queue), MAX_IN_A_MESSAGE))]
        outcome = await self._post(message(self._region, batch))
        self._note(None if outcome.verdict is ExportVerdict.ACCEPTED else outcome.reason)
        if outcome.retryable:
            self._backoff.wait(asyncio.get_running_loop().time(), outcome.wait_s)
            return False
        self._backoff.reset()
        for each in batch:
            if self._queue and self._queue[0] is each:  # `offer` may have dropped it
                self._queue.popleft()
        refused = outcome.rejected if outcome.verdict is ExportVerdict.ACCEPTED else len(batch)
        self.sent += len(batch) - refused
        self.dropped += refused
        if refused and outcome.reason:
            self.trouble = outcome.reason
        return True

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            self._report(f"The collector at {self.url} does not take results: {trouble}")
        elif trouble is None and self.trouble is not None:
            self._report(f"The collector at {self.url} takes results again.")
        self.trouble = trouble

    async def _post(self, body: bytes) -> ExportResponse:
        headers = (("Content-Type", "application/x-protobuf"), *self._to.headers)
        request, response, answer = (
            HttpRequest(self._to.endpoint, headers, body),
            Response(),
            bytearray(),
        )
        try:
            async with asyncio.timeout(self._to.timeout_s):
                await exchange(
                    request, Timings(), response, self._context, lambda data, _: answer.extend(data)
                )
        except TimeoutError:
            return ExportResponse(
                ExportVerdict.UNREACHABLE, f"no answer within {self._to.timeout_s:g} s"
            )
        except Exception as error:  # probing never waits for the collector, nor ends with it
            reason = str(error) if isinstance(error, ProbeFailure) else repr(error)
            return ExportResponse(ExportVerdict.UNREACHABLE, printable(reason, MAX_ERROR_CHARS))
        if response.status >= 300:
            return http_failure(response.status, response.headers)
        try:
            partial = ExportTraceServiceResponse.FromString(bytes(answer)).partial_success
        except Exception:  # the body is not OTLP, but the status is a success
            return ExportResponse(ExportVerdict.ACCEPTED)
        rejected = min(max(partial.rejected_spans, 0), MAX_IN_A_MESSAGE)
        return ExportResponse(ExportVerdict.ACCEPTED, partial.error_message, rejected=rejected)
