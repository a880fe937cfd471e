"""Records an engine core's steps, and sends each request's measurements (its account) to the front
ends.

`scheduler_hooks.py` catches exceptions. After an exception, the requests in the engine lose their
accounts.

In each step, this module computes only a few sums and loops over the requests in prefill. All other
work is done ten times a second, for several steps together. Work in each step would take three
times as long, because the model evicts this code from the CPU caches.

Source: vllm/v1/core/sched/scheduler.py and output.py, 0.12 to 0.33.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.block_hashes import HashReader
from tailspan_vllm.engine_core.encoder_inputs import encoder_ratios
from tailspan_vllm.engine_core.engine_reports import (
    gauges_of,
    identity_of,
    running_with_adapter,
    scheduler_load,
    waiting_with_adapter,
)
from tailspan_vllm.engine_core.link import EngineEnd
from tailspan_vllm.engine_core.link_messages import (
    encode_account,
    encode_identity,
    encode_sample,
)
from tailspan_vllm.engine_core.request_listener import RequestListener
from tailspan_vllm.engine_core.step_billing import Chunk, Decoding
from tailspan_vllm.engine_core.step_ledger import Ledger, RequestEngineTime, Track
from tailspan_vllm.engine_core.step_model import StepWork
from tailspan_vllm.engine_core.waiting_requests import WaitingRequests, external_tokens
from tailspan_vllm.engine_state.state import Number

CATCH_UP_S = 0.1

SAMPLE_S = 1.0
"""Interval of a busy engine's samples. An engine that becomes idle sends a sample at once."""

TRACK_LIMIT = 65536
"""Maximum number of tracked requests. All other requests have no account."""

STEPS_UNDER_WAY = 1024
"""If this many steps seem to run at once, the hook has missed the ends of steps. Pipeline
parallelism has one running step per stage, and asynchronous scheduling adds one step."""

UNSEEN_ENDS = 1024
"""If the ledger tracks this many requests more than the scheduler has, the hook has missed their
ends. The tracks are then removed."""


_NO_PREFILL: Final[Mapping[str, int]] = {}


class _PlannedStep(NamedTuple):
    output: Any
    work: StepWork
    begun: float
    sequences: int
    encodes: bool
    completes: Mapping[str, int]
    """The requests whose prefill ends in this step: request id → tokens of the request."""


class _EndedStep(NamedTuple):
    work: StepWork
    begun: float
    ended: float
    sequences: int
    encodes: bool
    prefill_follows: bool


class _EndedRequest(NamedTuple):
    track: Track
    last: int
    """The last step that ended before the request ended."""
    paid: int
    """The last step with work for the request. The step may still be running."""


class EngineObserver:
    """Keeps the ledger of one engine core, and sends accounts over the link.

    Args:
        ladders: whether to send the block hashes that prefix ladders need.
        listener: reports the requests, or None if a front end reports the requests.
    """

    def __init__(
        self,
        link: EngineEnd,
        engine: int,
        *,
        ladders: bool = False,
        listener: RequestListener | None = None,
    ) -> None:
        self.ledger = Ledger()
        self._link = link
        self._listener = listener
        self._engine = engine
        self._tracks: dict[str, Track] = {}
        self._prefilling: set[str] = set()
        self._planned: deque[_PlannedStep] = deque()
        self._ended: list[_EndedStep] = []
        self._freed: list[tuple[Track, int]] = []
        """Requests freed during `update_from_output`, each with its last scheduled step."""
        self._leaving: list[_EndedRequest] = []
        self._unsettled: list[_EndedRequest] = []
        self.in_update = False
        """Whether vLLM is processing a step's outputs. A request freed meanwhile had work in the
        step."""
        self._waiting = WaitingRequests(TRACK_LIMIT)
        self._ladders = ladders
        self._hashes: HashReader | None = None
        self._idle = True
        self._last_end = 0.0
        self._caught_up_at = self._sampled_at = 0.0
        self._totals: dict[str, float] = dict.fromkeys(names.LEDGER_COUNTERS, 0)
        self._longest_s = 0.0
        self._started_unix_ns = time.time_ns()
        self._adapters = False
        self._untracked: set[str] = set()
        """Requests without a track: sessions with streaming input, requests beyond `TRACK_LIMIT`,
        and requests during which a hook failed."""
        self._no_account = 0
        """Number of lost accounts."""

    @property
    def _step(self) -> int:
        return self._last_step + 1 + len(self._planned)

    @property
    def _last_step(self) -> int:
        return self.ledger.next_step + len(self._ended) - 1

    def began(self, scheduler: Any, request: Any) -> None:
        """Call the listener with a request before the request enters the queue."""
        if self._listener is not None:
            self._listener.began(scheduler, request)

    def refused(self, scheduler: Any, request: Any) -> None:
        """Forget a request whose `add_request` raised an exception."""
        if request.request_id in scheduler.requests:
            return
        if self._listener is not None:
            self._listener.ended(request)
        self._waiting.left(request.request_id)

    def queued(self, request_id: str) -> None:
        """Record the arrival of a request. Ignore a request that continues a session."""
        if request_id not in self._tracks and request_id not in self._untracked:
            self._waiting.joined(request_id)

    def scheduled(self, scheduler: Any, output: Any, at: float) -> None:
        """Record the work of a scheduled step."""
        self.in_update = False  # an exception in `update_from_output` may have left it True
        self._waiting.decided(scheduler, output, at)
        if len(self._planned) >= STEPS_UNDER_WAY:
            raise RuntimeError(f"the ends of {STEPS_UNDER_WAY} scheduled steps were not seen")
        counts: dict[str, int] = output.num_scheduled_tokens
        if not counts:
            self._idle = self._idle or not self._planned
            return
        cached = output.scheduled_cached_reqs
        begun = at if self._idle and not self._planned else 0.0
        self._idle = False
        if not (output.scheduled_new_reqs or cached.resumed_req_ids or self._prefilling):
            work = StepWork(0, 0.0, sum(cached.num_computed_tokens), len(counts))
            self._planned.append(_PlannedStep(output, work, begun, len(counts), False, _NO_PREFILL))
            return
        step = self._step
        new = {request.req_id for request in output.scheduled_new_reqs}
        # vLLM reports a preempted request as resumed. With newer model runners, it reports the
        # request as new.
        for request_id in (*new, *cached.resumed_req_ids):
            self._prefilling.add(request_id)
            if track := self._tracks.get(request_id):
                track.resumed_in.append(step)
                continue
            if request_id in self._untracked:
                continue
            waited = self._waiting.admitted(request_id, at)
            request = scheduler.requests.get(request_id)
            if self._listener is not None and request is not None:
                self._listener.admitted(request)
            if getattr(request, "resumable", False):
                self._untracked.add(request_id)  # a session with streaming input has no row
            elif len(self._tracks) < TRACK_LIMIT:
                load = self._waiting.load_for(scheduler, request_id, request)
                start = (
                    None if request is None else request.num_computed_tokens - counts[request_id]
                )
                external = external_tokens(request, start)
                has_encoder = bool(getattr(scheduler, "max_num_encoder_input_tokens", 0))
                self._tracks[request_id] = Track(
                    request_id, at, waited, external, load, has_encoder
                )
            else:
                self._untracked.add(request_id)
                self._no_account += 1
        encoded = encoder_ratios(scheduler, output)
        context = sum(cached.num_computed_tokens)
        tokens, attention, prefills = 0, 0.0, 0
        completes: dict[str, int] = {}
        for request_id in tuple(self._prefilling):
            count = counts.get(request_id)
            request = scheduler.requests.get(request_id)
            if count is None or request is None:
                continue
            computed = request.num_computed_tokens
            start = computed - count
            prefills += 1
            tokens += count
            ratio = encoded.get(request_id, 0.0)
            chunk = Chunk(step, count, count * (start + count / 2), ratio)
            attention += chunk.attention
            if request_id not in new:
                context -= start
            complete = computed >= request.num_tokens
            if complete:
                self._prefilling.discard(request_id)
                completes[request_id] = request.num_tokens
            if track := self._tracks.get(request_id):
                track.chunks.append(chunk)
                if complete:
                    track.decodings.append(Decoding(step, computed))
        work = StepWork(tokens, attention, max(context, 0), len(counts) - prefills)
        self._planned.append(
            _PlannedStep(output, work, begun, len(counts), bool(encoded), completes)
        )

    def ends(self, scheduler: Any, request: Any) -> None:
        """Copy a request's block hashes before vLLM frees the request. Stop after a failure."""
        if self._listener is not None:
            self._listener.ended(request)
        track = self._tracks.get(request.request_id)
        # A request has no hashes without prefix caching, or if it is shorter than a block.
        if not self._ladders or track is None or not getattr(request, "block_hashes", None):
            return
        try:
            if self._hashes is None:
                self._hashes = HashReader(scheduler)
            track.block_hashes = self._hashes.of(request)
        except Exception:
            guard.note_failure("prefix_ladder")
            self._ladders = False

    def preempted(self, request_id: str) -> None:
        """Record that vLLM preempted a request and discarded its KV cache."""
        if self._listener is not None:
            self._listener.preempted(request_id)
        track = self._tracks.get(request_id)
        self._prefilling.discard(request_id)
        self._waiting.batch_changed(request_id, evicted=True)
        if track is None:
            return
        last = self._step - 1
        track.evicted_after.append(last)
        if track.decodings and track.decodings[-1].last is None:
            track.decodings[-1].last = max(last, track.decodings[-1].first)

    def freed(self, request_id: str) -> None:
        """Record that a request has finished or been aborted."""
        self._prefilling.discard(request_id)
        self._waiting.batch_changed(request_id, evicted=False)
        track = self._tracks.pop(request_id, None)
        if track is None:
            if request_id in self._untracked:
                self._untracked.discard(request_id)
            else:
                self._left_queue(request_id)
            return
        paid = self._last_planned(request_id)
        if self.in_update:
            self._freed.append((track, paid))
        elif paid > self._last_step:
            self._leaving.append(_EndedRequest(track, self._last_step, paid))
        else:
            # Settle the request now, because the next step may begin hours later.
            self._unsettled.append(_EndedRequest(track, self._last_step, self._last_step))
            self._catch_up()

    def _left_queue(self, request_id: str) -> None:
        waited = self._waiting.left(request_id)
        if waited is None:
            return
        self._link.put(encode_account(self._engine, request_id, RequestEngineTime(waited=waited)))
        if not self._planned:
            self._link.flush()

    def _last_planned(self, request_id: str) -> int:
        """The last step with work for the request. If there is no such step, the last step that has
        ended."""
        before = self._last_step
        for place in range(len(self._planned), 0, -1):
            if request_id in self._planned[place - 1].output.num_scheduled_tokens:
                return before + place
        return before

    def ended(self, scheduler: Any, output: Any, results: Any) -> None:
        """Record that a step's outputs are ready."""
        self.in_update = False
        if self._listener is not None:
            self._listener.stepped(results)
        planned = self._planned
        if planned and (
            planned[0].output is output or any(each.output is output for each in planned)
        ):
            now = 0.0
            for result in results.values():
                now = max(now, result.timestamp)
            now = now or time.monotonic()
            ended = None
            while ended is not output:
                ended, work, begun, sequences, encodes, completes = planned.popleft()
                begun = max(begun, self._last_end)
                follows = bool(planned) and planned[0].work.prefill_tokens > 0
                self._ended.append(_EndedStep(work, begun, now, sequences, encodes, follows))
                self._last_end = now
                if completes:
                    self._continue_failed_prefills(scheduler, completes)
            self._idle = not scheduler.has_unfinished_requests() and not self._planned
        if self._freed or self._leaving:
            last = self._last_step
            gone = [_EndedRequest(track, last, max(last, paid)) for track, paid in self._freed]
            gone += self._leaving
            self._freed.clear()
            self._unsettled += [each for each in gone if each.paid <= last]
            self._leaving = [each for each in gone if each.paid > last]
        now = self._last_end
        if self._idle or now - self._caught_up_at >= CATCH_UP_S:
            self._catch_up()
            self._caught_up_at = now
            if self._idle or now - self._sampled_at >= SAMPLE_S:
                self._sampled_at = now
                self._sample(scheduler)

    def _continue_failed_prefills(self, scheduler: Any, completed: Mapping[str, int]) -> None:
        """Undo the completion of prefills whose KV cache could not be loaded in the step. vLLM
        discards the step's token, and computes the missing tokens in later steps."""
        for request_id, tokens in completed.items():
            request, track = scheduler.requests.get(request_id), self._tracks.get(request_id)
            if request is None or track is None or request.num_computed_tokens >= tokens:
                continue
            latest = track.decodings[-1] if track.decodings else None
            # If the request was preempted meanwhile, its decoding has an end.
            if latest and latest.first == self._last_step and latest.last is None:
                track.decodings.pop()
                self._prefilling.add(request_id)

    def _catch_up(self) -> None:
        steps, self._ended = self._ended, []
        try:
            for step in steps:
                self._enter(step)
        except Exception:
            self.lose_track()  # a missing step would shift the numbers of later steps
            raise
        while self._unsettled:
            track, last, paid = self._unsettled.pop()
            try:
                if account := self.ledger.settle(track, last, paid):
                    self._link.put(encode_account(self._engine, track.request_id, account))
            except Exception:  # only this request loses its account
                guard.note_failure("settle")
                self._no_account += 1
        self._link.flush()

    def _enter(self, step: _EndedStep) -> None:
        work, begun, ended, sequences, encodes, prefill_follows = step
        totals = self._totals
        totals[names.STEPS] += 1
        totals[names.PREFILL_STEPS] += work.prefill_tokens > 0
        totals[names.BUSY_TIME] += ended - begun
        totals[names.STALL_TIME] += self.ledger.end_step(
            work, begun, ended, sequences, encodes=encodes, prefill_follows=prefill_follows
        )
        totals[names.SCHEDULED_PREFILL_TOKENS] += work.prefill_tokens
        totals[names.PREFILL_ATTENTION] += work.prefill_attention
        totals[names.CONTEXT_TOKENS] += work.context_tokens
        totals[names.SCHEDULED_DECODES] += work.decodes
        self._longest_s = max(self._longest_s, ended - begun)

    def lose_track(self) -> None:
        """Remove all tracks after a hook failed, because the tracks lack the hook's data."""
        lost = (self._tracks, self._freed, self._leaving, self._unsettled)
        self._no_account += sum(map(len, lost))
        self._untracked.update(self._tracks)
        for each in (*lost, self._prefilling, self._planned):
            each.clear()
        self._waiting.forget_loads()
        self.in_update = False
        self._idle = True

    def close(self) -> None:
        """Send a last sample with the hook failures, and close the link."""
        try:
            self._send_sample({}, {})
            if self._listener is not None:
                self._listener.closed()
        finally:
            self._link.close()

    @guard.catch_exceptions("introduce")
    def introduce(self, scheduler: Any) -> None:
        """Set the message that a front end receives when it connects."""
        config = scheduler.vllm_config
        self._adapters = config.lora_config is not None
        identity = identity_of(config, self._engine, self._started_unix_ns)
        self._link.greeting = encode_identity(identity)
        if self._listener is not None:
            self._listener.introduced(identity)

    @guard.catch_exceptions("sample")
    def _sample(self, scheduler: Any) -> None:
        gauges = gauges_of(self.ledger.model, self._longest_s)
        load = scheduler_load(scheduler)
        if self._adapters:
            gauges[names.WAITING_LORAS] = waiting_with_adapter(scheduler)
            load[names.RUNNING_LORAS] = running_with_adapter(scheduler)
        self._send_sample(gauges, load)
        self._longest_s = 0.0
        self._forget_unseen_ends(scheduler.requests)

    def _send_sample(self, gauges: dict[str, float], load: dict[str, Number]) -> None:
        """Send the totals to one front end, and the load to all."""
        dropped = self._link.dropped + self._no_account
        sample = {
            "engine": self._engine,
            "state": load,
            "totals": {**self._totals, names.ACCOUNTS_DROPPED: dropped},
            "gauges": gauges,
            "failures": dict(guard.failures),
        }
        self._link.send_to_one(encode_sample(sample))
        self._link.send_to_others(encode_sample({"engine": self._engine, "state": load}))

    def _forget_unseen_ends(self, alive: Any) -> None:
        enough = len(alive) + UNSEEN_ENDS
        if len(self._tracks) > enough:
            ended = [request_id for request_id in self._tracks if request_id not in alive]
            self._no_account += len(ended)
            for request_id in ended:
                del self._tracks[request_id]
            guard.count(
                "unseen_ends",
                "tailspan: the hooks missed the end of some requests, whose spans lack the engine"
                " core's measurements",
            )
        if len(self._prefilling) > enough:
            self._prefilling.intersection_update(alive)
        if len(self._untracked) > enough:
            self._untracked.intersection_update(alive)
        self._waiting.keep(alive, enough)
