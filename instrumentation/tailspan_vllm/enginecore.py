"""Where we listen inside vLLM's engine core: five methods of its scheduler.

Per step: a few sums over what was scheduled, none of them a Python loop over the batch; a
loop over the requests in prefill only. What follows from the steps is worked out ten times
a second for all of them at once: code that runs once a step finds the processor's caches
full of the model's own, and takes three times as long.

Source: vllm/v1/core/sched/scheduler.py and output.py, 0.12 to 0.33.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from tailspan_vllm import guard, names
from tailspan_vllm.billing import Chunk, Decoding
from tailspan_vllm.fingerprint import arguments_of, fingerprint
from tailspan_vllm.ledger import Account, Ledger, Track
from tailspan_vllm.link import (
    EngineEnd,
    Identity,
    encode_account,
    encode_identity,
    encode_sample,
)
from tailspan_vllm.machine import machine_of
from tailspan_vllm.obstacles import Watch
from tailspan_vllm.queueing import Queue
from tailspan_vllm.stepmodel import Work

CATCH_UP_S = 0.1
"""Between two turns of entering steps, settling requests and telling the front ends."""

SAMPLE_S = 1.0
IDLE_SAMPLE_S = 0.05
"""Before an engine falls idle it says where it stands: the next step may be hours away."""
TRACK_LIMIT = 65536


class _Ended(NamedTuple):
    """A step that is over and not yet in the ledger."""

    work: Work
    begun: float
    ended: float
    sequences: int


class _Gone(NamedTuple):
    """A request that has ended, or been aborted."""

    track: Track
    last: int
    """The last step that it lived to see."""
    paid: int
    """The last step that it had a part in: one under way when it left is computed all the same."""


class EngineObserver:
    """The ledger of one engine core, and its end of the link."""

    def __init__(self, link: EngineEnd, engine: int) -> None:
        self.ledger = Ledger()
        self._link = link
        self._engine = engine
        self._tracks: dict[str, Track] = {}
        self._prefilling: set[str] = set()
        self._planned: deque[tuple[Any, Work, float, int]] = deque()
        self._ended: list[_Ended] = []
        self._freed: list[tuple[Track, int]] = []
        """Ended within the step that is being updated, with the last step of their own."""
        self._leaving: list[_Gone] = []
        """A step of theirs is under way."""
        self._unsettled: list[_Gone] = []
        self._in_update = False
        self._queue: Queue | None = Queue()
        """None where what holds it up cannot be told."""
        self._obstacles: Watch | None = None
        self._evicted = False
        """Whether a request has lost its place since the last decision."""
        self._idle = True
        self._last_end = 0.0
        self._caught_up_at = self._sampled_at = 0.0
        self._totals: dict[str, float] = dict.fromkeys(names.OF_THE_LEDGER, 0)
        self._longest_s = 0.0
        self._started_unix_ns = time.time_ns()
        self._adapters = False

    @property
    def _step(self) -> int:
        """The number of the step that is scheduled next."""
        return self._last_step + 1 + len(self._planned)

    @property
    def _last_step(self) -> int:
        """The number of the step that ended last."""
        return self.ledger.next_step + len(self._ended) - 1

    @guard.harmless("queued")
    def queued(self, request_id: str) -> None:
        """A request has come, unless it is one that goes on with a session."""
        queue = self._queue
        if queue is not None and len(queue) < TRACK_LIMIT and request_id not in self._tracks:
            queue.joined(request_id, time.monotonic())

    def _decided(self, scheduler: Any, output: Any, at: float) -> None:
        """Note what keeps the queue from moving from now on."""
        if self._queue is None:
            return
        try:
            if self._obstacles is None:
                self._obstacles = Watch(scheduler)
            held = self._obstacles.held()
            obstacle = self._obstacles.obstacle(output, held, self._evicted)
            self._queue.decided(at, obstacle, held)
            self._evicted = False
        except Exception:
            guard.note_failure("queue")
            self._queue = None  # sums with a hole in them would be told as if they had none

    @guard.harmless("scheduled")
    def scheduled(self, scheduler: Any, output: Any, at: float) -> None:
        """A step was scheduled; its work is noted, its end is yet to come."""
        self._decided(scheduler, output, at)
        counts: dict[str, int] = output.num_scheduled_tokens
        if not counts:
            self._idle = self._idle or not self._planned
            return
        cached = output.scheduled_cached_reqs
        begun = at if self._idle and not self._planned else 0.0
        self._idle = False
        if not (output.scheduled_new_reqs or cached.resumed_req_ids or self._prefilling):
            work = Work(0, 0.0, sum(cached.num_computed_tokens), len(counts))
            self._planned.append((output, work, begun, len(counts)))
            return
        step = self._step
        new = {request.req_id for request in output.scheduled_new_reqs}
        # Back from preemption a request is told as resumed, or by the newer model runner as new.
        for request_id in (*new, *cached.resumed_req_ids):
            self._prefilling.add(request_id)
            if track := self._tracks.get(request_id):
                track.resumed_in.append(step)
                continue
            waited = self._queue.admitted(request_id, at) if self._queue is not None else None
            if len(self._tracks) < TRACK_LIMIT:
                external = _external_tokens(scheduler.requests.get(request_id))
                self._tracks[request_id] = Track(request_id, at, waited, external)
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
            chunk = Chunk(step, count, count * (start + count / 2))
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
        self._planned.append((output, work, begun, len(counts)))

    @guard.harmless("preempted")
    def preempted(self, request_id: str) -> None:
        """A running request lost its memory and is to begin again."""
        track = self._tracks.get(request_id)
        self._prefilling.discard(request_id)
        self._evicted = True
        if track is None:
            return
        last = self._step - 1
        track.evicted_after.append(last)
        if track.decodings and track.decodings[-1].last is None:
            track.decodings[-1].last = max(last, track.decodings[-1].first)

    @guard.harmless("freed")
    def freed(self, request_id: str) -> None:
        """A request has ended, by itself or by an abort."""
        self._prefilling.discard(request_id)
        track = self._tracks.pop(request_id, None)
        if track is None:
            self._gave_up(request_id)
            return
        paid = self._last_planned(request_id)
        if self._in_update:
            self._freed.append((track, paid))
        elif paid > self._last_step:
            self._leaving.append(_Gone(track, self._last_step, paid))
        else:
            # Nothing may follow it for hours.
            self._unsettled.append(_Gone(track, self._last_step, self._last_step))
            self._catch_up()

    def _gave_up(self, request_id: str) -> None:
        """A request has left that never was in a step: what it waited for is all there is."""
        waited = self._queue.left(request_id, time.monotonic()) if self._queue is not None else None
        if waited is None:
            return
        self._link.put(encode_account(self._engine, request_id, Account(waited=waited)))
        if not self._planned:
            self._link.flush()  # no step may come for hours

    def _last_planned(self, request_id: str) -> int:
        """The last step under way that a request has a part in; where none is, that before."""
        before = self._last_step
        for place in range(len(self._planned), 0, -1):
            if request_id in self._planned[place - 1][0].num_scheduled_tokens:
                return before + place
        return before

    @guard.harmless("step_ended")
    def ended(self, scheduler: Any, output: Any, results: Any) -> None:
        """A step's outputs are ready."""
        self._in_update = False
        planned = self._planned
        if planned and (planned[0][0] is output or any(output is each for each, *_ in planned)):
            now = 0.0
            for result in results.values():
                now = max(now, result.timestamp)
            now = now or time.monotonic()
            ended = None
            while ended is not output:
                ended, work, begun, sequences = planned.popleft()
                self._ended.append(_Ended(work, max(begun, self._last_end), now, sequences))
                self._last_end = now
            self._idle = not scheduler.has_unfinished_requests() and not self._planned
        if self._freed or self._leaving:
            last = self._last_step
            gone = [_Gone(track, last, max(last, paid)) for track, paid in self._freed]
            gone += self._leaving
            self._freed.clear()
            self._unsettled += [each for each in gone if each.paid <= last]
            self._leaving = [each for each in gone if each.paid > last]
        now = self._last_end
        if self._idle or now - self._caught_up_at >= CATCH_UP_S:
            self._catch_up()
            self._caught_up_at = now
            if now - self._sampled_at >= (IDLE_SAMPLE_S if self._idle else SAMPLE_S):
                self._sample(scheduler, now)

    def update_began(self) -> None:
        """Requests freed from here on took part in the step that is about to be entered."""
        self._in_update = True

    def _catch_up(self) -> None:
        """Enter the steps that have ended, settle the requests that have, and tell of them."""
        totals = self._totals
        steps, self._ended = self._ended, []
        unsettled, self._unsettled = self._unsettled, []
        for work, begun, ended, sequences in steps:
            totals[names.STEPS] += 1
            totals[names.BUSY_TIME] += ended - begun
            totals[names.STALL_TIME] += self.ledger.end_step(work, begun, ended, sequences)
            totals[names.SCHEDULED_PREFILL_TOKENS] += work.prefill_tokens
            totals[names.PREFILL_ATTENTION] += work.prefill_attention
            totals[names.CONTEXT_TOKENS] += work.context_tokens
            totals[names.SCHEDULED_DECODES] += work.decodes
            self._longest_s = max(self._longest_s, ended - begun)
        for track, last, paid in unsettled:
            if account := self.ledger.settle(track, last, paid):
                self._link.put(encode_account(self._engine, track.request_id, account))
        self._link.flush()

    @guard.harmless("introduce")
    def introduce(self, scheduler: Any) -> None:
        """Say which engine this is to every front end that connects."""
        from vllm import __version__ as vllm_version

        config = scheduler.vllm_config
        self._adapters = config.lora_config is not None
        served, arguments = config.model_config.served_model_name, arguments_of(config)
        machine = machine_of(config, self._started_unix_ns)
        self._link.greeting = encode_identity(
            Identity(
                engine=self._engine,
                started_unix_ns=self._started_unix_ns,
                model=served if isinstance(served, str) else served[0],
                config=fingerprint(arguments),
                version=str(vllm_version),
                arguments=arguments,
                process=os.getpid(),
                machine=machine,
            )
        )

    def _sample(self, scheduler: Any, now: float) -> None:
        model = self.ledger.model
        gauges: dict[str, float | None] = {names.LONGEST_STEP: self._longest_s}
        if model.ready:
            gauges |= dict(zip(names.STEP_MODEL, model.coefficients, strict=True))
            gauges[names.STEP_MODEL_ERROR] = model.error_ratio
            gauges[names.STEP_MODEL_R_SQUARED] = model.r_squared
        # Those held back have a queue of their own from 0.18 to 0.30; since 0.31 those have
        # that hold blocks already.
        queues = (
            scheduler.waiting,
            getattr(scheduler, "skipped_waiting", ()),
            getattr(scheduler, "kv_holding_waiting", ()),
        )
        if self._adapters:
            gauges[names.WAITING_LORAS] = sum(
                request.lora_request is not None for queue in queues for request in queue
            )
        known = {name: value for name, value in gauges.items() if value is not None}
        sample = {
            "engine": self._engine,
            "state": {
                names.RUNNING: len(scheduler.running),
                names.WAITING: sum(map(len, queues)),
            },
            "totals": {**self._totals, names.ACCOUNTS_DROPPED: self._link.dropped},
            "gauges": known,
            "failures": dict(guard.failures),
        }
        self._link.tell_one(encode_sample(sample))
        self._sampled_at, self._longest_s = now, 0.0


def _external_tokens(request: Any) -> int | None:
    """Tokens of a prompt that a KV connector brings: since 0.20 told with the prefill."""
    prefill = getattr(request, "prefill_stats", None)
    if prefill is not None:
        return int(prefill.num_external_cached_tokens)
    told = getattr(request, "num_external_computed_tokens", None)
    return None if told is None else int(told)


def install(make_observer: Callable[[], EngineObserver]) -> list[str]:
    """Wrap the scheduler's methods.

    Args:
        make_observer: called at the first request, in the process that turns out to run it.

    Returns: the names of methods that this vLLM lacks; without the first two there is no
    ledger, and nothing is wrapped.
    """
    from vllm.v1.core.sched.scheduler import Scheduler

    wanted = ("schedule", "update_from_output", "_free_request", "_preempt_request", "add_request")
    missing = [f"Scheduler.{name}" for name in wanted if not hasattr(Scheduler, name)]
    if any(name in missing for name in ("Scheduler.schedule", "Scheduler.update_from_output")):
        return missing
    watch = _Watch(make_observer)
    for name in wanted:
        if hasattr(Scheduler, name):
            original = getattr(Scheduler, name)
            setattr(Scheduler, name, wraps(original)(getattr(watch, name.strip("_"))(original)))
    return missing


class _Watch:
    """The wrappers, and the observer that the first request makes."""

    def __init__(self, make_observer: Callable[[], EngineObserver]) -> None:
        self._make = make_observer
        self._observer: EngineObserver | None = None
        self._failed = False

    def _begin(self, scheduler: Any) -> None:
        try:
            self._observer = self._make()
            self._observer.introduce(scheduler)
        except Exception:
            self._failed = True
            guard.logger.exception("tailspan: no step ledger; serving goes on without it")

    def schedule(self, original: Any) -> Any:
        def watched(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._observer is None and not self._failed:
                self._begin(scheduler)
            at = time.monotonic()
            output = original(scheduler, *args, **kwargs)
            if self._observer is not None:
                self._observer.scheduled(scheduler, output, at)
            return output

        return watched

    def update_from_output(self, original: Any) -> Any:
        def watched(scheduler: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
            observer = self._observer
            if observer is None:
                return original(scheduler, output, *args, **kwargs)
            observer.update_began()
            results = original(scheduler, output, *args, **kwargs)
            observer.ended(scheduler, output, results)
            return results

        return watched

    def add_request(self, original: Any) -> Any:
        def watched(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self._observer is None and not self._failed:
                self._begin(scheduler)
            if self._observer is not None:
                self._observer.queued(request.request_id)
            return original(scheduler, request, *args, **kwargs)

        return watched

    def free_request(self, original: Any) -> Any:
        def watched(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self._observer is not None:
                self._observer.freed(request.request_id)
            return original(scheduler, request, *args, **kwargs)

        return watched

    def preempt_request(self, original: Any) -> Any:
        def watched(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self._observer is not None:
                self._observer.preempted(request.request_id)
            return original(scheduler, request, *args, **kwargs)

        return watched
