"""Where we listen inside vLLM's engine core: four methods of its scheduler.

Per step: a few sums over what was scheduled, none of them a Python loop over the batch; a
loop over the requests in prefill only. Per request: its settlement, when it is freed.

Source: vllm/v1/core/sched/scheduler.py and output.py, 0.12 to 0.33.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

from tailspan_vllm import guard, names
from tailspan_vllm.fingerprint import fingerprint
from tailspan_vllm.ledger import Chunk, Decoding, Ledger, Track
from tailspan_vllm.link import EngineEnd, encode_account, encode_sample
from tailspan_vllm.stepmodel import Work

FLUSH_S = 0.1
SAMPLE_S = 1.0
IDLE_SAMPLE_S = 0.05
"""Before an engine falls idle it says where it stands: the next step may be hours away."""
TRACK_LIMIT = 65536


class EngineObserver:
    """The ledger of one engine core, and its end of the link."""

    def __init__(self, link: EngineEnd, engine: int) -> None:
        self.ledger = Ledger()
        self._link = link
        self._engine = engine
        self._tracks: dict[str, Track] = {}
        self._prefilling: set[str] = set()
        self._planned: deque[tuple[Any, Work, float]] = deque()
        self._freed: list[str] = []
        self._in_update = False
        self._idle = True
        self._last_end = 0.0
        self._flushed_at = self._sampled_at = 0.0
        self._totals: dict[str, float] = dict.fromkeys(
            (names.STEPS, names.BUSY_TIME, names.STALL_TIME, names.SCHEDULED_PREFILL_TOKENS), 0
        )
        self._longest_s = 0.0
        self._started_unix_ns = time.time_ns()
        self._about: dict[str, Any] | None = None

    @property
    def _step(self) -> int:
        """The number of the step that is scheduled next."""
        return self.ledger.next_step + len(self._planned)

    @guard.harmless("scheduled")
    def scheduled(self, scheduler: Any, output: Any, at: float) -> None:
        """A step was scheduled; its work is noted, its end is yet to come."""
        counts: dict[str, int] = output.num_scheduled_tokens
        if not counts:
            self._idle = self._idle or not self._planned
            return
        step, cached = self._step, output.scheduled_cached_reqs
        new = {request.req_id for request in output.scheduled_new_reqs}
        # Back from preemption a request is told as resumed, or by the newer model runner as new.
        for request_id in (*new, *cached.resumed_req_ids):
            self._prefilling.add(request_id)
            if track := self._tracks.get(request_id):
                track.resumed_in.append(step)
            elif len(self._tracks) < TRACK_LIMIT:
                self._tracks[request_id] = Track(scheduled=at)
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
        begun = at if self._idle and not self._planned else 0.0
        self._planned.append((output, work, begun))
        self._idle = False

    @guard.harmless("preempted")
    def preempted(self, request_id: str) -> None:
        """A running request lost its memory and is to begin again."""
        track = self._tracks.get(request_id)
        self._prefilling.discard(request_id)
        if track is None:
            return
        last = self._step - 1
        track.evicted_after.append(last)
        if track.decodings and track.decodings[-1].last is None:
            track.decodings[-1].last = max(last, track.decodings[-1].first)

    @guard.harmless("freed")
    def freed(self, request_id: str) -> None:
        """A request has ended, by itself or by an abort."""
        self._freed.append(request_id)
        if not self._in_update:
            self._settle()
            self._link.flush()

    @guard.harmless("step_ended")
    def ended(self, scheduler: Any, output: Any, results: Any) -> None:
        """A step's outputs are ready."""
        self._in_update = False
        if self._planned and any(planned is output for planned, _, _ in self._planned):
            now = max((result.timestamp for result in results.values()), default=0.0)
            now = now or time.monotonic()
            while self._planned:
                planned, work, begun = self._planned.popleft()
                self._enter(work, max(begun, self._last_end), now)
                if planned is output:
                    break
            self._idle = not scheduler.has_unfinished_requests() and not self._planned
        self._settle()
        now = self._last_end
        if self._idle or now - self._flushed_at >= FLUSH_S:
            self._link.flush()
            self._flushed_at = now
        if now - self._sampled_at >= (IDLE_SAMPLE_S if self._idle else SAMPLE_S):
            self._sample(scheduler, now)

    def update_began(self) -> None:
        """Requests freed from here on took part in the step that is about to be entered."""
        self._in_update = True

    def _enter(self, work: Work, begun: float, ended: float) -> None:
        stall_s = self.ledger.end_step(work, begun, ended)
        self._last_end = ended
        totals = self._totals
        totals[names.STEPS] += 1
        totals[names.BUSY_TIME] += ended - begun
        totals[names.STALL_TIME] += stall_s
        totals[names.SCHEDULED_PREFILL_TOKENS] += work.prefill_tokens
        self._longest_s = max(self._longest_s, ended - begun)

    def _settle(self) -> None:
        for request_id in self._freed:
            track = self._tracks.pop(request_id, None)
            self._prefilling.discard(request_id)
            account = self.ledger.settle(track) if track is not None else None
            if account is not None:
                self._link.put(encode_account(self._engine, request_id, account))
        self._freed.clear()

    def _identity(self, scheduler: Any) -> dict[str, Any]:
        """Which engine this is and how it stands, for a front end that has no stat logger."""
        if self._about is None:
            config = scheduler.vllm_config
            served = config.model_config.served_model_name
            self._about = {
                "model": served if isinstance(served, str) else served[0],
                "config": fingerprint(config),
                "started_unix_ns": self._started_unix_ns,
            }
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        state = {names.RUNNING: running, names.WAITING: waiting}
        return {**self._about, "state": state}

    def _sample(self, scheduler: Any, now: float) -> None:
        model = self.ledger.model
        gauges: dict[str, float | None] = {names.LONGEST_STEP: self._longest_s}
        if model.ready:
            gauges |= dict(zip(names.STEP_MODEL, model.coefficients, strict=True))
            gauges[names.STEP_MODEL_ERROR] = model.error_ratio
            gauges[names.STEP_MODEL_R_SQUARED] = model.r_squared
        known = {name: value for name, value in gauges.items() if value is not None}
        sample = {
            "engine": self._engine,
            **self._identity(scheduler),
            "totals": {**self._totals, names.ACCOUNTS_DROPPED: self._link.dropped},
            "gauges": known,
            "failures": dict(guard.failures),
        }
        self._link.tell_one(encode_sample(sample))
        self._sampled_at, self._longest_s = now, 0.0


def install(make_observer: Callable[[], EngineObserver]) -> list[str]:
    """Wrap the scheduler's methods.

    Args:
        make_observer: called at the first step, in the process that turns out to run it.

    Returns: the names of methods that this vLLM lacks; without the first two there is no
    ledger, and nothing is wrapped.
    """
    from vllm.v1.core.sched.scheduler import Scheduler

    wanted = ("schedule", "update_from_output", "_free_request", "_preempt_request")
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
    """The wrappers, and the observer that the first step makes."""

    def __init__(self, make_observer: Callable[[], EngineObserver]) -> None:
        self._make = make_observer
        self._observer: EngineObserver | None = None
        self._failed = False

    def _begin(self) -> None:
        try:
            self._observer = self._make()
        except Exception:
            self._failed = True
            guard.logger.exception("tailspan: no step ledger; serving goes on without it")

    def schedule(self, original: Any) -> Any:
        def watched(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._observer is None and not self._failed:
                self._begin()
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
