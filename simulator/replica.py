"""One server of the fleet: its front end, its engine and the delivery of responses. Pure.

A restart fails the server's requests, and empties its KV cache.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailspan_vllm import names
from tailspan_vllm.engine_core.step_model import FittedStepModel, StepWork
from tailspan_vllm.engine_state.config_fingerprint import fingerprint
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.parts import HeldParts, RequestPhaseParts, RequestQueueParts
from tailspan_vllm.request.record import Outcome, RequestRecord

from replay.engine import ReplayEngine
from replay.engine_config import EngineConfig
from replay.front_end import TOKEN_S, FrontEndModel, ReplayFrontEnd
from replay.job import Job
from replay.step_clock import Stall
from simulator.conditions import ConditionChange, ReplicaConditions, Restart
from simulator.gpu import KV_TOKEN_BYTES, TOKEN_FLOPS, WEIGHT_BYTES, GpuMeter, machine
from simulator.prefix_ladders import ladder
from simulator.workload import Prefix, SimulatedRequest
from telemetry.gpus import GpuSample

_FRONT_END = FrontEndModel()
_REFUSE_S = 0.0006
_LEAVE_S = 0.005
"""Seconds until the server notices that a client has disconnected."""
_BUFFERED_TOKENS = 48
"""Number of tokens that a slow client's connection buffers. The limit is 16 KiB of events."""
_LINK_BYTES_PER_S = 12e9
"""Bandwidth of KV transfers, about 100 Gbit/s."""
_LINK_S = 0.002
_FETCHED_RATIO = 0.9
"""Share of a prompt's tokens whose KV cache comes from another server."""
_CORE_SHARE = 0.9
"""CPU time of the engine core, as a share of the time in steps."""
_HOST_CPUS = 16


@dataclass(slots=True)
class _Pending:
    request: SimulatedRequest
    record: RequestRecord


class SimulatedReplica:
    """One vLLM server.

    Args:
        name, region: its `service.instance.id` and `cloud.region`.
        stalls: returns the stalls of the engine after a virtual time.
        started_unix_ns: the wall-clock time at virtual time 0.
    """

    def __init__(
        self,
        name: str,
        region: str,
        model: str,
        config: EngineConfig,
        seed: str,
        stalls: Callable[[float], Iterable[Stall]] = lambda _from_s: (),
        started_unix_ns: int = 0,
    ) -> None:
        self.name = name
        self.region = region
        self.conditions = ReplicaConditions()
        self._model = model
        self._seed = seed
        self._stalls = stalls
        self._began_unix_ns = started_unix_ns
        self._chance = random.Random(f"{seed}:edge")
        self._gpus = GpuMeter(name, config.tensor_parallel_size)
        self._pending: dict[int, _Pending] = {}
        self._received = 0
        self._starts = 0
        self._config = config
        self._ready_s: float | None = None
        self._loading_s: float | None = None
        """Duration of the last start; None for the first."""
        self._restart: Restart | None = None
        self._host_busy_s = 0.0
        self._sampled_s = 0.0
        self._start(0.0, 0.0)

    @property
    def up(self) -> bool:
        """Whether the server accepts requests."""
        return self._ready_s is None

    @property
    def outstanding(self) -> int:
        """The number of requests in the front end or the engine."""
        return self._engine.outstanding

    @property
    def ready_s(self) -> float | None:
        """The time when the server will be up again, or None while it is up."""
        return self._ready_s

    def change(self, change: ConditionChange) -> None:
        """Apply a changed condition. Call it after `advance` to the time of the change."""
        self.conditions.set(change)
        self._apply()

    def stop(self, restart: Restart) -> list[RequestRecord]:
        """Stop the server. Return the records of the interrupted requests."""
        cut = [self._failed(job, restart.at_s) for job in self._engine.unfinished()]
        self._pending.clear()
        self._ready_s = restart.at_s + restart.down_s
        self._restart = restart
        self._loading_s = restart.down_s
        if restart.config is not None:
            self._config = restart.config
        self._start(self._ready_s, restart.new_shape_s)
        return cut

    def receive(self, request: SimulatedRequest) -> RequestRecord | None:
        """Receive a request. Call it after `advance` to the request's time. If the request is
        rejected, return its record."""
        record = self._record(request)
        config = self._engine.config
        arrived = request.at_s + _FRONT_END.read_s
        too_long = request.prompt_tokens + request.output_tokens > config.max_model_len
        unknown = request.lora is not None and not config.max_loras
        if request.malformed or too_long or unknown:
            return _refused(record, arrived, 400, "400")
        if self._engine.full:
            return _refused(record, arrived, 503, "max_num_queued_reqs")
        queued = self._front_end.take(arrived, _FRONT_END.request_s(request.prompt_tokens))
        record.arrived, record.queued = arrived, queued
        record.engine = 0
        record.lora = request.lora
        record.prompt_tokens = request.prompt_tokens
        record.waiting_at_arrival = self._engine.waiting
        record.running_at_arrival = self._engine.running
        record.kv_usage_at_arrival = self._engine.kv.usage_ratio
        fetched = self._fetched_tokens(request)
        self._engine.submit(
            Job(
                number=self._received,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.leaves_after_tokens or request.output_tokens,
                queued=queued,
                prefixes=_shared(request),
                lora=request.lora,
                acceptance=request.acceptance,
                fetch_s=self._fetch_s(fetched) if fetched else 0.0,
                fetched_tokens=fetched,
                grammar_s=request.grammar_s,
                encoder_s=request.encoder_s or 0.0,
            )
        )
        self._pending[self._received] = _Pending(request, record)
        return None

    @property
    def newest(self) -> int:
        """The number of the last received request."""
        return self._received

    def give_up(
        self, number: int, at_s: float
    ) -> tuple[SimulatedRequest | None, list[RequestRecord]]:
        """End a request whose client gives up at `at_s`. Call it after `advance` to this time.

        Returns:
            The request, or None if it has already ended. The second result is a list with the
            request's record. If the request is in the batch, the list is empty, and `advance`
            returns the record later.
        """
        pending = self._pending.get(number)
        if pending is None:
            return None, []
        job = self._engine.abort(number)
        return pending.request, [] if job is None else [self._aborted(job, at_s)]

    def advance(self, until: float) -> list[RequestRecord]:
        """Simulate until the virtual time `until`. Return the records of ended requests."""
        if self._ready_s is not None:
            if until < self._ready_s:
                return []
            self._ready_s = None
        if self.conditions.total("hung"):
            return []
        return [
            self._aborted(job, job.aborted) if job.aborted is not None else self._ended(job)
            for job in self._engine.advance(until)
        ]

    def gpus(self, at_s: float) -> tuple[GpuSample, ...]:
        """One sample per GPU for the time since the last call, even while the server is down."""
        over_s, self._sampled_s = at_s - self._sampled_s, at_s
        foreign = self.conditions.total("foreign")
        self._host_busy_s += over_s * (0.3 + 2.0 * foreign)
        at_unix_ns = self._began_unix_ns + round(at_s * 1e9)
        return self._gpus.sample(at_unix_ns, over_s, self._engine.totals, self.conditions)

    def state(self, at_s: float) -> EngineState | None:
        """The engine's state, or None while the server is down.

        Call it once per sample, because it contains the longest step since the last call.
        """
        if not self.up:
            return None
        engine, totals, config = self._engine, self._engine.totals, self._engine.config
        fit = self._fit
        gauges: dict[str, int | float] = {
            names.WAITING: engine.waiting,
            names.DEFERRED: engine.deferred,
            names.RUNNING: engine.running,
            names.KV_USAGE: engine.kv.usage_ratio,
            names.HOST_CPUS: _HOST_CPUS,
            **self._unfinished(at_s),
        }
        longest_step_s = engine.take_longest_step_s()
        if longest_step_s is not None:  # there were steps
            gauges[names.LONGEST_STEP] = longest_step_s
        if fit.ready:
            gauges |= dict(zip(names.STEP_MODEL, fit.coefficients, strict=True))
        if fit.error_ratio is not None:
            gauges[names.STEP_MODEL_ERROR] = fit.error_ratio
        if fit.r_squared is not None:
            gauges[names.STEP_MODEL_R_SQUARED] = fit.r_squared
        front_end_s = self._front_end.busy_s + totals.decode_tokens * TOKEN_S
        core_s = totals.busy_s * _CORE_SHARE
        sums: dict[str, int | float] = {
            names.STEPS: totals.steps,
            names.PREFILL_STEPS: totals.prefill_steps,
            names.BUSY_TIME: totals.busy_s,
            names.STALL_TIME: totals.stall_s,
            names.SCHEDULED_PREFILL_TOKENS: totals.scheduled_prefill_tokens,
            names.PREFILL_ATTENTION: totals.prefill_attention,
            names.CONTEXT_TOKENS: totals.context_tokens,
            names.SCHEDULED_DECODES: totals.decodes,
            names.PREFILL_TOKENS: totals.prefill_tokens,
            names.DECODE_TOKENS: totals.decode_tokens,
            names.PREFIX_CACHE_QUERIES: totals.cache_query_tokens,
            names.PREFIX_CACHE_HITS: totals.cache_hit_tokens,
            names.ENGINE_PREEMPTIONS: totals.preemptions,
            names.PROCESS_CPU_TIME: front_end_s,
            names.CORE_CPU_TIME: core_s,
            names.HOST_BUSY_TIME: self._host_busy_s + front_end_s + core_s,
            names.HOST_STEAL_TIME: 0.0,
            names.MODELLED_FLOPS: (totals.decode_tokens + totals.scheduled_prefill_tokens)
            * TOKEN_FLOPS
            / config.tensor_parallel_size,
            names.MODELLED_READ_BYTES: (
                totals.steps * WEIGHT_BYTES + totals.context_tokens * KV_TOKEN_BYTES
            )
            / config.tensor_parallel_size,
        }
        if config.max_loras:
            gauges[names.WAITING_LORAS] = engine.waiting_loras
            gauges[names.RUNNING_LORAS] = engine.running_loras
        if config.num_speculative_tokens:
            sums[names.DRAFTS] = totals.drafts
            sums[names.DRAFT_TOKENS] = totals.draft_tokens
            sums[names.ACCEPTED_TOKENS] = totals.accepted_tokens
        if config.kv_connector:
            gauges[names.FETCHING_KV] = engine.fetching
            sums[names.EXTERNAL_CACHE_QUERIES] = totals.external_query_tokens
            sums[names.EXTERNAL_CACHE_HITS] = totals.external_hit_tokens
            sums[names.KV_TRANSFER_BYTES] = totals.transferred_tokens * KV_TOKEN_BYTES
            sums[names.KV_TRANSFER_TIME] = totals.transfer_s
            sums[names.KV_TRANSFER_FAILURES] = 0
        return EngineState(
            version="simulated",
            engine=0,
            started_unix_ns=self._started_unix_ns,
            model=self._model,
            config=self._fingerprint,
            gauges=gauges,
            totals=sums,
            arguments=self._arguments,
            machine=machine(config.tensor_parallel_size)._replace(loading_s=self._loading_s),
        )

    def _unfinished(self, at_s: float) -> dict[str, int | float]:
        """The gauges of requests in flight, as in the plugin (`in_flight.py`)."""
        oldest = next(iter(self._pending.values()), None)
        if oldest is None:
            return {names.IN_FLIGHT: 0, names.OLDEST_REQUEST_AGE: 0.0}
        received = oldest.record.received
        return {
            names.IN_FLIGHT: len(self._pending),
            names.OLDEST_REQUEST_AGE: max(0.0, at_s - received),
            names.LAST_STEP_AGE: max(0.0, at_s - max(self._engine.last_step_s, received)),
        }

    def _start(self, at_s: float, new_shape_s: float) -> None:
        seed = f"{self._seed}:engine" + (f":{self._starts}" if self._starts else "")
        self._starts += 1
        self._fit = FittedStepModel()
        self._engine = ReplayEngine(
            self._config, seed, self._stalls(at_s), at_s, new_shape_s, self._learn
        )
        self._front_end = ReplayFrontEnd()
        self._gpus.restarted()
        self._started_unix_ns = self._began_unix_ns + round(at_s * 1e9)
        self._arguments = self._config.arguments()
        self._fingerprint = fingerprint(self._arguments)
        self._apply()

    def _learn(
        self, prefill_tokens: int, pairs: float, context_tokens: int, decodes: int, took_s: float
    ) -> None:
        """Fit the step model as the plugin does, so that its errors are realistic."""
        self._fit.learn(StepWork(prefill_tokens, pairs, context_tokens, decodes), took_s)

    def _apply(self) -> None:
        conditions, engine = self.conditions, self._engine
        # A step ends with its slowest rank.
        engine.clock.pace = conditions.factor("pace") * max(1.0, conditions.factor("rank_pace"))
        engine.clock.slowdown_per_sequence = conditions.total("slowdown_per_sequence")
        engine.loras.pace = conditions.factor("storage_pace")
        engine.lost_blocks = round(conditions.total("lost_blocks"))
        self._front_end.pace = conditions.factor("frontend_pace")

    def _fetched_tokens(self, request: SimulatedRequest) -> int:
        if not self._engine.config.kv_connector:
            return 0
        if request.hop is None:
            return round(request.prompt_tokens * _FETCHED_RATIO)
        block = self._engine.config.block_size  # only whole blocks are sent
        return (request.prompt_tokens - 1) // block * block if request.hop.prefilled else 0

    def _fetch_s(self, tokens: int) -> float:
        wire_s = tokens * KV_TOKEN_BYTES / _LINK_BYTES_PER_S
        slow = self.conditions.factor("link_pace") * self._chance.lognormvariate(0.0, 0.2)
        return _LINK_S + wire_s * slow

    def _record(self, request: SimulatedRequest) -> RequestRecord:
        self._received += 1
        bits = (self._chance.getrandbits(128) or 1) if request.hop is None else request.hop.bits
        return RequestRecord(
            received=request.at_s,
            delivered=request.at_s,
            wall_offset_ns=self._began_unix_ns,
            outcome="error",
            basis="http",
            operation="chat" if request.chat else "text_completion",
            request_id=("chatcmpl-" if request.chat else "cmpl-") + f"{bits:032x}",
            trace_id=bits,
            model=self._model,
            route="/v1/chat/completions" if request.chat else "/v1/completions",
            tenant=request.tenant,
            config=self._fingerprint,
            streamed=request.streamed,
        )

    def _failed(self, job: Job, at_s: float) -> RequestRecord:
        pending = self._pending[job.number]
        record = pending.record
        record.error_type = "engine_silent"
        begun = job.first_token is not None and pending.request.streamed
        record.http_status = 200 if begun else 500
        if job.scheduled is not None and job.scheduled <= at_s:
            record.scheduled = job.scheduled
        if job.first_token is not None:
            record.first_token = job.first_token
            if begun:
                record.first_byte = min(job.first_token + _FRONT_END.first_s(), at_s)
        record.preempted_at, record.resumed_at = job.preempted_at, job.resumed_at
        record.cached_tokens = job.cached_tokens
        record.queued, record.handed = (
            (None, None) if job.handed is None else (job.queued, job.handed)
        )
        record.delivered = max(at_s, record.arrived or at_s)
        return record

    def _aborted(self, job: Job, at_s: float) -> RequestRecord:
        """The record of a request whose client gave up. It contains only times before the client
        gave up."""
        pending = self._pending.pop(job.number)
        record, streamed = pending.record, pending.request.streamed
        record.outcome = "abort"
        record.delivered = max(at_s, record.arrived or at_s)
        record.queued, record.handed = (
            (None, None) if job.handed is None else (job.queued, job.handed)
        )
        record.scheduled, record.first_token = job.scheduled, job.first_token
        record.cached_tokens, record.preemptions = job.cached_tokens, len(job.preempted_at)
        record.preempted_at, record.resumed_at = job.preempted_at, job.resumed_at
        record.billed_s, record.wasted_s = job.billed_s, job.wasted_s
        if job.scheduled is not None:
            record.queue_parts = RequestQueueParts(*job.queue)
            record.held_parts = _held(job)
        if job.first_token is None or job.last_token is None or job.scheduled is None:
            return record
        record.last_token, record.output_tokens = job.last_token, job.made_tokens
        record.itl_max_s = job.itl_max_s
        record.prefill_parts = RequestPhaseParts(*job.prefill.of(job.first_token - job.scheduled))
        record.encoder_s = _encoder_s(pending.request, record.prefill_parts)
        record.decode_parts = RequestPhaseParts(*job.decode.of(job.last_token - job.first_token))
        if streamed:
            record.http_status = 200
            first_byte = job.first_token + _FRONT_END.first_s()
            record.first_byte = min(first_byte, record.delivered)
        return record

    def _ended(self, job: Job) -> RequestRecord:
        pending = self._pending.pop(job.number)
        request, record = pending.request, pending.record
        if job.first_token is None or job.last_token is None:
            raise AssertionError(f"job {job.number} ended without a token")
        left = request.leaves_after_tokens is not None
        record.outcome = _outcome(request)
        record.http_status = None if left and not request.streamed else 200
        record.queued, record.handed = job.queued, job.handed
        record.scheduled = job.scheduled
        record.first_token, record.last_token = job.first_token, job.last_token
        wobble = self._chance.uniform(0.5, 1.5)
        written = self._front_end.write(
            job.last_token, (_LEAVE_S if left else _FRONT_END.last_s()) * wobble
        )
        begun = self._front_end.write(job.first_token, _FRONT_END.first_s() * wobble)
        if request.reads_tokens_per_s is not None and request.streamed and not left:
            waiting = max(0, job.made_tokens - _BUFFERED_TOKENS)
            written = max(written, begun + waiting / request.reads_tokens_per_s)
        record.delivered = written
        # If a response is not streamed, a client that disconnects receives nothing.
        if request.streamed:
            record.first_byte = min(begun, record.delivered)
        elif not left:
            record.first_byte = record.delivered
        record.preempted_at, record.resumed_at = job.preempted_at, job.resumed_at
        record.cached_tokens = job.cached_tokens
        record.external_cached_tokens = job.external_cached_tokens
        record.output_tokens = job.made_tokens
        if self._config.enable_prefix_caching:
            record.prefix_ladder = ladder(
                request, self._config.block_size, request.prompt or f"{record.trace_id:x}"
            )
        record.preemptions = len(job.preempted_at)
        record.itl_max_s = job.itl_max_s
        record.billed_s, record.wasted_s = job.billed_s, job.wasted_s
        record.others_prefill_tokens_max = job.others_prefill_tokens_max
        record.queue_parts = RequestQueueParts(*job.queue)
        record.held_parts = _held(job)
        prefill_s = job.first_token - (job.scheduled or job.first_token)
        record.prefill_parts = RequestPhaseParts(*job.prefill.of(prefill_s))
        record.encoder_s = _encoder_s(request, record.prefill_parts)
        record.decode_parts = RequestPhaseParts(*job.decode.of(job.last_token - job.first_token))
        return record


def _held(job: Job) -> HeldParts:
    """Divide the time for which the scheduler held the request back: first the grammar, then the KV
    cache, then the adapter."""
    held_s = job.queue.held
    grammar_s = min(job.grammar_s, held_s)
    kv_load_s = min(job.fetch_s, held_s - grammar_s)
    rest_s = held_s - grammar_s - kv_load_s
    return HeldParts(kv_load_s, grammar_s, rest_s if job.lora is not None else 0.0)


def _encoder_s(request: SimulatedRequest, prefill: RequestPhaseParts) -> float | None:
    """The encoder's time. It is at most the request's own prefill time, which a preemption may have
    reduced."""
    return None if request.encoder_s is None else min(request.encoder_s, prefill.own)


def _shared(request: SimulatedRequest) -> tuple[Prefix, ...]:
    """The prefixes that other requests may share. These are the system prompt and a repeated
    prompt."""
    found = (request.prefix,) if request.prefix else ()
    if request.prompt is None:
        return found
    return (*found, Prefix(request.prompt, request.prompt_tokens - 1))


def _refused(record: RequestRecord, arrived: float, status: int, error_type: str) -> RequestRecord:
    record.outcome, record.http_status, record.error_type = "rejected", status, error_type
    record.delivered = arrived + _REFUSE_S
    return record


def _outcome(request: SimulatedRequest) -> Outcome:
    if request.leaves_after_tokens is not None:
        return "abort"
    return "length" if request.cut else "stop"
