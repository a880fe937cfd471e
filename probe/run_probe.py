"""Run one probe: reserve its cost, send it and measure it. A probe is never retried."""

import asyncio
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from probe.answer import ProbeAnswer
from probe.budget import BudgetReservation, ProbeBudget
from probe.connection import Timings
from probe.errors import MAX_ERROR_CHARS, ProbeFailure
from probe.http_exchange import HttpRequest, OnBody, Response, exchange
from probe.plan import Endpoint
from probe.prices import PriceOf, ProbeTokens
from probe.protocols import PROTOCOLS
from probe.refusals import refused
from telemetry.addresses import HIDDEN
from telemetry.cache_aliases import Reported, in_headers
from telemetry.cache_lookups import CacheResult
from telemetry.printable import printable
from telemetry.probes import PROBE_TENANT, Probe, ProbeOutcome

MAX_ID_CHARS: Final = 256
"""Maximum length of a response's id. The collector truncates longer texts."""
DEFAULT_TENANT_HEADER: Final = "x-tenant-id"


@dataclass(frozen=True, slots=True)
class Due:
    """A probe that is due. `at` and `deadline` are seconds of the event loop's clock."""

    at: float
    at_unix_ns: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Prober:
    """Sends probes. The `environment` may contain the endpoints' keys."""

    region: str
    budget: ProbeBudget
    price_of: PriceOf
    context: ssl.SSLContext
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def send(self, endpoint: Endpoint, prompt: str, twin: bool, due: Due) -> Probe:
        """Send a probe. Return its result, even after a failure.

        If the current task is cancelled, the outcome is `abort`.
        """
        sending = _Sending(self, endpoint, prompt, twin, due)
        return await sending.run()

    def unsent(self, endpoint: Endpoint, due: Due, outcome: ProbeOutcome, late_s: float) -> Probe:
        """The result of a probe that was not sent."""
        return Probe(
            trace_id=secrets.token_hex(16),
            span_id=secrets.token_hex(8),
            at_unix_ns=due.at_unix_ns,
            region=self.region,
            endpoint=endpoint.name,
            kind=endpoint.kind,
            model=endpoint.model,
            outcome=outcome,
            late_s=late_s,
        )


class _Sending:
    def __init__(
        self, prober: Prober, endpoint: Endpoint, prompt: str, twin: bool, due: Due
    ) -> None:
        self._prober, self._endpoint, self._due = prober, endpoint, due
        self._prompt, self._twin = prompt, twin
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._trace_id, self._span_id = secrets.token_hex(16), secrets.token_hex(8)
        self._timings, self._response = Timings(), Response()
        self._answer = ProbeAnswer(endpoint.max_tokens)
        self._secrets: list[str] = []

    async def run(self) -> Probe:
        try:
            return await self._run()
        except Exception as error:  # a defect of the prober; other endpoints must still be probed
            sentence = f"the prober failed: {type(error).__name__}: {error}"
            return self._result(ProbeOutcome.ERROR, ProbeFailure("prober", sentence))

    async def _run(self) -> Probe:
        try:
            request = await self._request()
        except ProbeFailure as failure:
            return self._result(ProbeOutcome.ERROR, failure)
        except asyncio.CancelledError:
            return self._result(ProbeOutcome.ABORT, ProbeFailure("abort", "the prober was stopped"))
        reserved = self._prober.budget.reserve(self._endpoint, len(request.body))
        if reserved is None:
            late_s = self._started - self._due.at
            return self._prober.unsent(self._endpoint, self._due, ProbeOutcome.OVER_BUDGET, late_s)
        outcome, why = await self._outcome(request)
        result = self._result(outcome, why)
        self._settle(reserved)
        return result

    async def _request(self) -> HttpRequest:
        endpoint = self._endpoint
        key = None if endpoint.key is None else endpoint.key.read(self._prober.environment)
        if key is not None:
            self._secrets.append(key)
        build = PROTOCOLS[endpoint.kind].build
        if endpoint.kind == "bedrock":  # botocore may ask for credentials over the network
            request = await asyncio.to_thread(build, endpoint, self._prompt, key)
        else:
            request = build(endpoint, self._prompt, key)
        tenant_header = self._prober.environment.get("TAILSPAN_TENANT_HEADER")
        return request._replace(
            headers=(
                *request.headers,
                ("X-Request-Id", self._own_id),
                ("traceparent", f"00-{self._trace_id}-{self._span_id}-01"),
                (tenant_header or DEFAULT_TENANT_HEADER, PROBE_TENANT),
            )
        )

    @property
    def _response_id(self) -> str | None:
        """The id in the response, as the collector stores it. A server can send an id of any
        length, or with lone surrogates, which a result must not contain."""
        given = self._answer.response_id
        return None if given is None else given[:MAX_ID_CHARS].encode(errors="replace").decode()

    @property
    def _own_id(self) -> str:
        return f"probe-{self._trace_id}"

    async def _outcome(self, request: HttpRequest) -> tuple[ProbeOutcome, ProbeFailure | None]:
        try:
            async with asyncio.timeout_at(self._due.deadline):
                await exchange(
                    request, self._timings, self._response, self._prober.context, self._on_body()
                )
            if self._response.status >= 300:
                return ProbeOutcome.REJECTED, refused(self._response)
            self._check_complete()
        except ProbeFailure as failure:
            return ProbeOutcome.ERROR, failure
        except TimeoutError:
            allowed_s = self._due.deadline - self._started
            return ProbeOutcome.TIMEOUT, ProbeFailure(
                "timeout", f"no complete answer within {allowed_s:.3g} s"
            )
        except asyncio.CancelledError:
            return ProbeOutcome.ABORT, ProbeFailure("abort", "the prober was stopped")
        cache = self._cache
        if cache is not None and cache.result is CacheResult.HIT:
            return ProbeOutcome.CACHED, None
        length = self._answer.finish == "length"
        return (ProbeOutcome.LENGTH if length else ProbeOutcome.STOP), None

    def _on_body(self) -> OnBody:
        protocol, answer = PROTOCOLS[self._endpoint.kind], self._answer
        decoder = protocol.decoder()

        def read(data: bytes, at: float) -> None:
            for event in decoder.feed(data):
                if answer.first_event_at is None:
                    answer.first_event_at = at
                protocol.read(event, at, answer)

        return read

    def _check_complete(self) -> None:
        if self._answer.first_event_at is None:
            kind = self._response.headers.get("content-type", "unknown")
            raise ProbeFailure("stream", f"the answer is not an event stream, but {kind}")
        self._answer.check_complete()

    @property
    def _cache(self) -> Reported | None:
        return in_headers(self._response.headers)

    def _settle(self, reserved: BudgetReservation) -> None:
        budget = self._prober.budget
        if self._timings.ready_at is None:
            budget.cancel(reserved)  # nothing was sent
        elif self._response.status >= 300:
            budget.settle(reserved, self._endpoint, ProbeTokens(0, 0))
        else:
            budget.settle(reserved, self._endpoint, self._used)

    @property
    def _used(self) -> ProbeTokens | None:
        answer = self._answer
        if answer.prompt_tokens is None or answer.output_tokens is None or not answer.complete:
            return None
        return ProbeTokens(answer.prompt_tokens, answer.output_tokens, answer.cached_tokens or 0)

    def _result(self, outcome: ProbeOutcome, failure: ProbeFailure | None) -> Probe:
        timings, answer, used, cache = self._timings, self._answer, self._used, self._cache
        if outcome is ProbeOutcome.CACHED:
            used = None  # the list price does not apply to answers from a cache
        ready_at = timings.ready_at
        return Probe(
            trace_id=self._trace_id,
            span_id=self._span_id,
            at_unix_ns=self._due.at_unix_ns,
            region=self._prober.region,
            endpoint=self._endpoint.name,
            kind=self._endpoint.kind,
            model=self._endpoint.model,
            outcome=outcome,
            error_type=None if failure is None else failure.error_type,
            error=None if failure is None else self._sentence(failure),
            http_status=self._response.status or None,
            request_id=self._response_id or (None if ready_at is None else self._own_id),
            twin=self._twin,
            cache=None if cache is None else cache.cache,
            cache_result=None if cache is None else str(cache.result),
            late_s=max(self._started - self._due.at, 0.0),
            dns_s=timings.dns_s,
            connect_s=timings.connect_s,
            tls_s=timings.tls_s,
            written_s=timings.written_s,
            first_byte_s=timings.first_byte_s,
            first_event_s=self._since_ready(answer.first_event_at),
            first_reasoning_s=self._since_ready(answer.first_reasoning_at),
            first_content_s=self._since_ready(answer.first_content_at),
            itl_max_s=answer.longest_gap_s,
            e2e_s=self._since_ready(timings.ended_at or self._loop.time()),
            server_queue_s=answer.server_queue_s,
            server_prefill_s=answer.server_prefill_s,
            server_decode_s=answer.server_decode_s,
            chunks=answer.chunks if ready_at is not None else None,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            cost_usd=None if used is None else self._prober.price_of(self._endpoint, used),
            certificate_ends_unix_s=timings.certificate_ends_unix_s,
        )

    def _since_ready(self, at: float | None) -> float | None:
        ready_at = self._timings.ready_at
        return None if at is None or ready_at is None else at - ready_at

    def _sentence(self, failure: ProbeFailure) -> str:
        """Remove the endpoint's key, which a server may repeat in an error message. Only then
        shorten the sentence, because a key that is cut off would not be found."""
        sentence = str(failure)
        for each in self._secrets:
            sentence = sentence.replace(each, HIDDEN)
        return printable(sentence, MAX_ERROR_CHARS)
