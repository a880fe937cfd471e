"""Records an engine core's steps, and sends accounts of its requests to the front ends.

`scheduler_hooks.py` calls this module inside guards. An exception in this module is counted, and
the requests in the engine lose their accounts. vLLM is not affected.

Per step, this module computes a few sums without a Python loop over the batch, and loops only over
the requests in prefill. It does all other work ten times a second, for all recent steps at once.
Code that runs once per step is three times slower, because the model evicts it from the CPU caches.

Source: vllm/v1/core/sched/scheduler.py and output.py, 0.12 to 0.33.
"""

import os
import time
from collections import deque
from typing import Any, NamedTuple

from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.block_hashes import HashReader
from tailspan_vllm.engine_core.kv_loads import KvLoads
from tailspan_vllm.engine_core.link import EngineEnd
from tailspan_vllm.engine_core.link_messages import (
    Identity,
    encode_account,
    encode_identity,
    encode_sample,
)
from tailspan_vllm.engine_core.queue_obstacles import QueueObstacles
from tailspan_vllm.engine_core.queue_waits import Hold, Queue
from tailspan_vllm.engine_core.request_listener import RequestListener
from tailspan_vllm.engine_core.step_billing import Chunk, Decoding
from tailspan_vllm.engine_core.step_ledger import Account, Ledger, Track
from tailspan_vllm.engine_core.step_model import Work
from tailspan_vllm.engine_state.config_fingerprint import arguments_of, fingerprint
from tailspan_vllm.engine_state.hardware import machine_of
from tailspan_vllm.request.parts import KvLoad
from tailspan_vllm.start_up import hooks as start_hooks

CATCH_UP_S = 0.1
"""Interval at which ended steps are added to the ledger, accounts of ended requests are computed,
and messages are sent to the front ends.
"""

SAMPLE_S = 1.0
"""Interval between two samples of a busy engine.

An engine also sends a sample when it becomes idle, because its next step may begin hours later.
Sending a sample takes about 20 µs.
"""

TRACK_LIMIT = 65536
"""Maximum number of tracked requests. Further requests are counted as dropped accounts."""

STEPS_UNDER_WAY = 1024
"""Maximum number of scheduled steps that have not ended.

Pipeline parallelism has one such step per stage, and asynchronous scheduling adds one. If there are
this many, the hook has missed the ends of steps.
"""

UNSEEN_ENDS = 1024
"""Maximum excess of tracked requests over the scheduler's requests. Above it, the observer removes
the tracks of requests that the scheduler no longer has, because the hook missed their ends.
"""


class _EndedStep(NamedTuple):
    """A step that has ended and is not yet in the ledger."""

    work: Work
    begun: float
    ended: float
    sequences: int
    encodes: bool


class _EndedRequest(NamedTuple):
    """A request that has finished or been aborted."""

    track: Track
    last: int
    """The last step that ended before the request ended."""
    paid: int
    """The last step with work for the request.

    If a step with its work is running when the request ends, this is that step.
    """


class EngineObserver:
    """Keeps the ledger of one engine core, and sends accounts over the link.

    Args:
        link: the link to the front ends.
        engine: the engine's index.
        ladders: whether to send the block hashes that prefix ladders need.
        listener: reports the requests, if no front end does.
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
        self._planned: deque[tuple[Any, Work, float, int, bool]] = deque()
        self._ended: list[_EndedStep] = []
        self._freed: list[tuple[Track, int]] = []
        """Requests freed during `update_from_output`, each with its last scheduled step."""
        self._leaving: list[_EndedRequest] = []
        """Requests that have ended while a step with their work is running."""
        self._unsettled: list[_EndedRequest] = []
        self.in_update = False
        """Whether vLLM is processing the outputs of a step. A request that is freed meanwhile took
        part in that step.
        """
        self._queue: Queue | None = Queue()
        """The queue, or None if the reasons for waiting cannot be determined."""
        self._ladders = ladders
        self._hashes: HashReader | None = None
        self._obstacles: QueueObstacles | None = None
        self._loads: KvLoads | None = None
        self._describes_loads = True
        """Whether bytes and tiers of loads are read. False after a failure."""
        self._loading: dict[str, KvLoad | None] = {}
        """The loads of the requests that wait for their KV cache."""
        self._evicted = False
        """Whether a request was preempted since the last scheduling decision."""
        self._idle = True
        self._last_end = 0.0
        self._caught_up_at = self._sampled_at = 0.0
        self._totals: dict[str, float] = dict.fromkeys(names.OF_THE_LEDGER, 0)
        self._longest_s = 0.0
        self._started_unix_ns = time.time_ns()
        self._adapters = False
        self._untracked: set[str] = set()
        """Requests in the engine that are not tracked, because of `TRACK_LIMIT` or a failed hook.
        """
        self._no_account = 0
        """Number of requests without an account: never tracked, or their track was lost."""

    @property
    def _step(self) -> int:
        """The number of the step that will be scheduled next."""
        return self._last_step + 1 + len(self._planned)

    @property
    def _last_step(self) -> int:
        """The number of the step that ended last."""
        return self.ledger.next_step + len(self._ended) - 1

    def began(self, scheduler: Any, request: Any) -> None:
        """Pass a request that enters the queue to the listener."""
        if self._listener is not None:
            self._listener.began(scheduler, request)

    def queued(self, request_id: str) -> None:
        """Record the arrival of a request. Ignore a request that continues a session."""
        queue = self._queue
        tracked = request_id in self._tracks or request_id in self._untracked
        if queue is not None and len(queue) < TRACK_LIMIT and not tracked:
            queue.joined(request_id, time.monotonic())

    def _decided(self, scheduler: Any, output: Any, at: float) -> None:
        """Record why requests stay in the queue after this scheduling decision."""
        if self._queue is None:
            return
        try:
            if self._obstacles is None:
                self._obstacles = QueueObstacles(scheduler)
            if output.scheduled_new_reqs or output.scheduled_cached_reqs.resumed_req_ids:
                self._obstacles.batch_changed()
            held = self._obstacles.held()
            obstacle = self._obstacles.obstacle(output, held, self._evicted)
            self._queue.holds_known = self._obstacles.holds_known
            changed = self._queue.decided(at, obstacle, held)
            self._evicted = False
            for request_id, hold in changed.items():
                if hold is Hold.KV_LOAD:
                    request = scheduler.requests.get(request_id)
                    self._loading[request_id] = self._load_of(scheduler, request)
        except Exception:
            guard.note_failure("queue")
            self._queue = None  # sums with a gap would look complete

    def _load_of(self, scheduler: Any, request: Any) -> KvLoad | None:
        """Describe what a connector loads for a request, or return None if that is unknown."""
        tokens = _external_tokens(request)
        if not tokens or not self._describes_loads:
            return None
        try:
            if self._loads is None:
                self._loads = KvLoads(scheduler)
            return self._loads.load_of(request, tokens)
        except Exception:
            guard.note_failure("kv_load")
            self._describes_loads = False
            return None

    def scheduled(self, scheduler: Any, output: Any, at: float) -> None:
        """Record the work of a scheduled step."""
        self.in_update = False  # the previous update may have raised
        self._decided(scheduler, output, at)
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
            work = Work(0, 0.0, sum(cached.num_computed_tokens), len(counts))
            self._planned.append((output, work, begun, len(counts), False))
            return
        step = self._step
        new = {request.req_id for request in output.scheduled_new_reqs}
        # A preempted request is resumed, or appears as new in newer versions of the model runner.
        for request_id in (*new, *cached.resumed_req_ids):
            self._prefilling.add(request_id)
            if track := self._tracks.get(request_id):
                track.resumed_in.append(step)
                continue
            if request_id in self._untracked:
                continue
            waited = self._queue.admitted(request_id, at) if self._queue is not None else None
            request = scheduler.requests.get(request_id)
            if self._listener is not None and request is not None:
                self._listener.admitted(request)
            if len(self._tracks) < TRACK_LIMIT:
                if request_id in self._loading:
                    load = self._loading.pop(request_id)
                else:
                    load = self._load_of(scheduler, request)
                external = _external_tokens(request)
                has_encoder = bool(getattr(scheduler, "max_num_encoder_input_tokens", 0))
                self._tracks[request_id] = Track(
                    request_id, at, waited, external, load, has_encoder
                )
            else:
                self._untracked.add(request_id)
                self._no_account += 1
        encoded = _encoder_ratios(scheduler, output)
        context = sum(cached.num_computed_tokens)
        tokens, attention, prefills = 0, 0.0, 0
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
            if track := self._tracks.get(request_id):
                track.chunks.append(chunk)
                if complete:
                    track.decodings.append(Decoding(step, computed))
        work = Work(tokens, attention, max(context, 0), len(counts) - prefills)
        self._planned.append((output, work, begun, len(counts), bool(encoded)))

    def ends(self, scheduler: Any, request: Any) -> None:
        """Copy the hashes of a request that is about to be freed, unless an earlier copy failed."""
        if self._listener is not None:
            self._listener.ended(request)
        track = self._tracks.get(request.request_id)
        # vLLM has no hashes without prefix caching, or for a request shorter than a block.
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
        """Record that a running request was preempted, which discards its KV cache."""
        if self._listener is not None:
            self._listener.preempted(request_id)
        track = self._tracks.get(request_id)
        self._prefilling.discard(request_id)
        self._evicted = True
        self._batch_changed()
        if track is None:
            return
        last = self._step - 1
        track.evicted_after.append(last)
        if track.decodings and track.decodings[-1].last is None:
            track.decodings[-1].last = max(last, track.decodings[-1].first)

    def freed(self, request_id: str) -> None:
        """Record that a request has finished or been aborted."""
        self._prefilling.discard(request_id)
        self._loading.pop(request_id, None)
        self._batch_changed()
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
            # The next step may begin hours later.
            self._unsettled.append(_EndedRequest(track, self._last_step, self._last_step))
            self._catch_up()

    def _batch_changed(self) -> None:
        if self._obstacles is not None:
            self._obstacles.batch_changed()

    def _left_queue(self, request_id: str) -> None:
        """Send the account of a request that took part in no step: its time in the queue."""
        waited = self._queue.left(request_id, time.monotonic()) if self._queue is not None else None
        if waited is None:
            return
        self._link.put(encode_account(self._engine, request_id, Account(waited=waited)))
        if not self._planned:
            self._link.flush()  # the next step may begin hours later

    def _last_planned(self, request_id: str) -> int:
        """Return the last scheduled step with the request, or else the last step that ended."""
        before = self._last_step
        for place in range(len(self._planned), 0, -1):
            if request_id in self._planned[place - 1][0].num_scheduled_tokens:
                return before + place
        return before

    def ended(self, scheduler: Any, output: Any, results: Any) -> None:
        """Record that a step's outputs are ready."""
        self.in_update = False
        if self._listener is not None:
            self._listener.stepped(results)
        planned = self._planned
        if planned and (planned[0][0] is output or any(output is each for each, *_ in planned)):
            now = 0.0
            for result in results.values():
                now = max(now, result.timestamp)
            now = now or time.monotonic()
            ended = None
            while ended is not output:
                ended, work, begun, sequences, encodes = planned.popleft()
                begun = max(begun, self._last_end)
                self._ended.append(_EndedStep(work, begun, now, sequences, encodes))
                self._last_end = now
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

    def _catch_up(self) -> None:
        """Add ended steps to the ledger, and send the accounts of ended requests."""
        steps, self._ended = self._ended, []
        try:
            for step in steps:
                self._enter(step)
        except Exception:
            self.lose_track()  # otherwise later steps would have wrong numbers
            raise
        while self._unsettled:
            track, last, paid = self._unsettled.pop()
            try:
                if account := self.ledger.settle(track, last, paid):
                    self._link.put(encode_account(self._engine, track.request_id, account))
            except Exception:  # other requests keep their accounts
                guard.note_failure("settle")
                self._no_account += 1
        self._link.flush()

    def _enter(self, step: _EndedStep) -> None:
        work, begun, ended, sequences, encodes = step
        totals = self._totals
        totals[names.STEPS] += 1
        totals[names.BUSY_TIME] += ended - begun
        totals[names.STALL_TIME] += self.ledger.end_step(
            work, begun, ended, sequences, encodes=encodes
        )
        totals[names.SCHEDULED_PREFILL_TOKENS] += work.prefill_tokens
        totals[names.PREFILL_ATTENTION] += work.prefill_attention
        totals[names.CONTEXT_TOKENS] += work.context_tokens
        totals[names.SCHEDULED_DECODES] += work.decodes
        self._longest_s = max(self._longest_s, ended - begun)

    def lose_track(self) -> None:
        """Remove the tracks of all requests in the engine after a hook failed.

        Otherwise their accounts would be wrong without a sign of it.
        """
        lost = (self._tracks, self._freed, self._leaving, self._unsettled)
        self._no_account += sum(map(len, lost))
        self._untracked.update(self._tracks)
        for each in (*lost, self._prefilling, self._planned, self._loading):
            each.clear()
        self.in_update = False
        self._idle = True  # measure the next step from its scheduling

    def close(self) -> None:
        """Send a last sample, which contains the failures, and close the link."""
        try:
            self._link.send_to_one(encode_sample(self._sample_of({}, {})))
            if self._listener is not None:
                self._listener.closed()
        finally:
            self._link.close()

    @guard.harmless("introduce")
    def introduce(self, scheduler: Any) -> None:
        """Set the identity message that every front end receives when it connects."""
        from vllm import __version__ as vllm_version

        config = scheduler.vllm_config
        self._adapters = config.lora_config is not None
        served, arguments = config.model_config.served_model_name, arguments_of(config)
        identity = Identity(
            engine=self._engine,
            started_unix_ns=self._started_unix_ns,
            model=served if isinstance(served, str) else served[0],
            config=fingerprint(arguments),
            version=str(vllm_version),
            arguments=arguments,
            process=os.getpid(),
            machine=machine_of(config, self._started_unix_ns),
            start=start_hooks.RECORD.instants(),
        )
        self._link.greeting = encode_identity(identity)
        if self._listener is not None:
            self._listener.introduced(identity)

    @guard.harmless("sample")
    def _sample(self, scheduler: Any) -> None:
        model = self.ledger.model
        gauges: dict[str, float | None] = {names.LONGEST_STEP: self._longest_s}
        if model.ready:
            gauges |= dict(zip(names.STEP_MODEL, model.coefficients, strict=True))
            gauges[names.STEP_MODEL_ERROR] = model.error_ratio
            gauges[names.STEP_MODEL_R_SQUARED] = model.r_squared
        # From 0.18 to 0.30, `skipped_waiting` contains the requests that are held back. Since 0.31,
        # `kv_holding_waiting` contains those of them that already hold blocks.
        queues = (
            scheduler.waiting,
            getattr(scheduler, "skipped_waiting", ()),
            getattr(scheduler, "kv_holding_waiting", ()),
        )
        if self._adapters:
            gauges[names.WAITING_LORAS] = sum(
                request.lora_request is not None for queue in queues for request in queue
            )
        defined = {name: value for name, value in gauges.items() if value is not None}
        state = {
            names.RUNNING: len(scheduler.running),
            names.WAITING: sum(map(len, queues)),
        }
        self._link.send_to_one(encode_sample(self._sample_of(defined, state)))
        self._longest_s = 0.0
        self._forget_unseen_ends(scheduler.requests)

    def _sample_of(self, gauges: dict[str, float], state: dict[str, int]) -> dict[str, Any]:
        """Return a sample of the current totals with the given gauges and state."""
        dropped = self._link.dropped + self._no_account
        return {
            "engine": self._engine,
            "state": state,
            "totals": {**self._totals, names.ACCOUNTS_DROPPED: dropped},
            "gauges": gauges,
            "failures": dict(guard.failures),
        }

    def _forget_unseen_ends(self, alive: Any) -> None:
        """Remove the tracks of requests that the scheduler no longer has."""
        enough = len(alive) + UNSEEN_ENDS
        if len(self._tracks) > enough:
            ended = [request_id for request_id in self._tracks if request_id not in alive]
            self._no_account += len(ended)
            for request_id in ended:
                del self._tracks[request_id]
            guard.count("unseen_ends", "tailspan: the hooks missed the end of some requests")
        if len(self._prefilling) > enough:
            self._prefilling.intersection_update(alive)
        if len(self._untracked) > enough:
            self._untracked.intersection_update(alive)
        if self._queue is not None and len(self._queue) > enough:
            self._queue.keep(alive)


def _external_tokens(request: Any) -> int | None:
    """Return the number of prompt tokens that a KV connector provided."""
    prefill = getattr(request, "prefill_stats", None)
    if prefill is not None:
        return int(prefill.num_external_cached_tokens)
    tokens = getattr(request, "num_external_computed_tokens", None)
    return None if tokens is None else int(tokens)


def _encoder_ratios(scheduler: Any, output: Any) -> dict[str, float]:
    """Return each request's share of the step's encoder inputs, in tokens of the prompt.

    If the tokens cannot be read, each request gets the same share.
    """
    inputs = getattr(output, "scheduled_encoder_inputs", None)
    if not inputs:
        return {}
    try:
        tokens = {
            request_id: sum(
                scheduler.requests[request_id].mm_features[place].mm_position.length
                for place in places
            )
            for request_id, places in inputs.items()
        }
    except Exception:
        guard.note_failure("encoder")
        tokens = dict.fromkeys(inputs, 1)
    whole = sum(tokens.values())
    return {request_id: number / whole for request_id, number in tokens.items()} if whole else {}
