"""One server of the fleet: front end, engine, delivery; requests in, records out.

Pure. The front end is one process, so tokenising delays those behind it.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tailspan_vllm import names
from tailspan_vllm.fingerprint import Scalar, fingerprint
from tailspan_vllm.metrics import EngineState
from tailspan_vllm.record import Outcome, RequestRecord

from simulator.engine import Engine, EngineConfig, Stall
from simulator.job import Job
from simulator.kv_cache import BLOCK_TOKENS
from simulator.workload import Request

_READ_S = 0.0003
"""Reading and parsing the HTTP request."""
_TEMPLATE_S = 0.0008
_TOKENISE_TOKEN_S = 0.6e-6
"""A fast tokenizer makes between one and two million tokens a second."""
_REFUSE_S = 0.0006
_FIRST_BYTE_S = 0.0004
"""Detokenising and writing the first event."""
_FLUSH_S = 0.0012
"""The same for the last, and closing the stream."""
_LEAVE_S = 0.005
"""Until the server notices that a client has left."""


@dataclass(slots=True)
class _Pending:
    request: Request
    record: RequestRecord


class Replica:
    """One vLLM server.

    Args:
        name: its `service.instance.id`.
        region: its `cloud.region`.
        model: the served model's name.
        config: of its engine.
        seed: decides its noise and ids.
        stalls: when its engine stands still.
        started_unix_ns: the wall clock at virtual 0.
    """

    def __init__(
        self,
        name: str,
        region: str,
        model: str,
        config: EngineConfig,
        seed: str,
        stalls: Iterable[Stall] = (),
        started_unix_ns: int = 0,
    ) -> None:
        self.name = name
        self.region = region
        self._model = model
        self._started_unix_ns = started_unix_ns
        self._arguments = _arguments_of(config)
        self._config = fingerprint(self._arguments)
        self._engine = Engine(config, f"{seed}:engine", stalls)
        self._chance = random.Random(f"{seed}:edge")
        self._front_end_free = 0.0
        self._pending: dict[int, _Pending] = {}
        self._received = 0

    @property
    def outstanding(self) -> int:
        """Requests in the engine or on their way to it."""
        return self._engine.outstanding

    def receive(self, request: Request) -> RequestRecord | None:
        """Take a request at its own instant, to which the replica has been advanced.

        Returns: the record of a request refused at the door; None for one that goes on.
        """
        record = self._record(request)
        arrived = request.at_s + _READ_S
        too_long = request.prompt_tokens + request.output_tokens > self._engine.config.max_model_len
        if request.malformed or too_long:
            record.outcome, record.http_status, record.error_type = "rejected", 400, "400"
            record.delivered = arrived + _REFUSE_S
            return record
        begun = max(arrived, self._front_end_free)
        queued = begun + _TEMPLATE_S + _TOKENISE_TOKEN_S * request.prompt_tokens
        self._front_end_free = queued
        record.arrived, record.queued = arrived, queued
        record.engine = 0
        record.prompt_tokens = request.prompt_tokens
        record.waiting_at_arrival = self._engine.waiting
        record.running_at_arrival = self._engine.running
        record.kv_usage_at_arrival = self._engine.kv.usage_ratio
        self._engine.submit(
            Job(
                number=self._received,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.leaves_after_tokens or request.output_tokens,
                queued=queued,
                prefix=request.prefix.name if request.prefix else None,
                prefix_tokens=request.prefix.tokens if request.prefix else 0,
            )
        )
        self._pending[self._received] = _Pending(request, record)
        return None

    def advance(self, until: float) -> list[RequestRecord]:
        """Run to `until`; the records of what made its last token by then."""
        return [self._ended(job) for job in self._engine.advance(until)]

    def state(self) -> EngineState:
        """The engine as of now. Asked once per sample: the longest step is since the last."""
        engine, totals = self._engine, self._engine.totals
        longest_step_s = engine.take_longest_step_s()
        return EngineState(
            engine=0,
            started_unix_ns=self._started_unix_ns,
            model=self._model,
            config=self._config,
            gauges={
                names.WAITING: engine.waiting,
                names.RUNNING: engine.running,
                names.KV_USAGE: engine.kv.usage_ratio,
                # An idle second has no longest step.
                **({} if longest_step_s is None else {names.LONGEST_STEP: longest_step_s}),
            },
            totals={
                names.STEPS: totals.steps,
                names.BUSY_TIME: totals.busy_s,
                names.PREFILL_TOKENS: totals.prefill_tokens,
                names.DECODE_TOKENS: totals.decode_tokens,
                names.PREFIX_CACHE_QUERIES: totals.cache_query_tokens,
                names.PREFIX_CACHE_HITS: totals.cache_hit_tokens,
                names.ENGINE_PREEMPTIONS: totals.preemptions,
            },
            arguments=self._arguments,
        )

    def _record(self, request: Request) -> RequestRecord:
        self._received += 1
        return RequestRecord(
            received=request.at_s,
            delivered=request.at_s,
            wall_offset_ns=self._started_unix_ns,
            outcome="error",
            basis="http",
            operation="chat" if request.chat else "text_completion",
            request_id=("chatcmpl-" if request.chat else "cmpl-")
            + f"{self._chance.getrandbits(128):032x}",
            model=self._model,
            route="/v1/chat/completions" if request.chat else "/v1/completions",
            tenant=request.tenant,
            config=self._config,
            streamed=request.streamed,
        )

    def _ended(self, job: Job) -> RequestRecord:
        pending = self._pending.pop(job.number)
        request, record = pending.request, pending.record
        if job.first_token is None or job.last_token is None:
            raise AssertionError(f"job {job.number} ended without a token")
        left = request.leaves_after_tokens is not None
        record.outcome = _outcome(request)
        record.http_status = None if left and not request.streamed else 200
        record.scheduled = job.scheduled
        record.first_token, record.last_token = job.first_token, job.last_token
        wobble = self._chance.uniform(0.5, 1.5)
        record.delivered = job.last_token + (_LEAVE_S if left else _FLUSH_S) * wobble
        # An answer sent whole begins where it ends; a client that left got none of it.
        if request.streamed:
            record.first_byte = min(job.first_token + _FIRST_BYTE_S * wobble, record.delivered)
        elif not left:
            record.first_byte = record.delivered
        record.preempted_at, record.resumed_at = job.preempted_at, job.resumed_at
        record.cached_tokens = job.cached_tokens
        record.external_cached_tokens = 0
        record.output_tokens = job.made_tokens
        record.preemptions = len(job.preempted_at)
        record.itl_max_s = job.itl_max_s
        record.others_prefill_tokens_max = job.others_prefill_tokens_max
        record.queue_parts = job.queue
        record.prefill_parts = job.prefill.of(job.first_token - (job.scheduled or job.first_token))
        record.decode_parts = job.decode.of(job.last_token - job.first_token)
        return record


def _arguments_of(config: EngineConfig) -> dict[str, Scalar]:
    """The engine's arguments, by the names that a real one's have."""
    return {
        "model.max_model_len": config.max_model_len,
        "cache.block_size": BLOCK_TOKENS,
        "cache.enable_prefix_caching": config.enable_prefix_caching,
        "cache.num_gpu_blocks": config.num_gpu_blocks,
        "cache.num_gpu_blocks_override": config.num_gpu_blocks,
        "scheduler.max_num_batched_tokens": config.max_num_batched_tokens,
        "scheduler.max_num_seqs": config.max_num_seqs,
        "scheduler.enable_chunked_prefill": True,
        "scheduler.policy": "fcfs",
    }


def _outcome(request: Request) -> Outcome:
    if request.leaves_after_tokens is not None:
        return "abort"
    return "length" if request.cut else "stop"
