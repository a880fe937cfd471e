"""Simulate a vLLM V1 engine in virtual time: continuous batching, paged KV cache, chunked prefill.

Pure: submissions, seed and configuration determine the result. Each step first gives the running
sequences their tokens, then fills the token budget with prefill in order of arrival. The step skips
requests that are not eligible: they wait for a grammar, a KV transfer or an adapter slot. If a
sequence needs a block and no block is free, the newest sequence is preempted. With the policy
`priority`, the sequence with the lowest priority is preempted. The preempted sequence returns to
the queue and is recomputed later.

vLLM serves the running sequences in the order of their admission; this engine serves decodes first.
Every sequence still gets the same number of tokens in each step as in vLLM, for two reasons. First,
the budget has a token for every decode, because `max_num_batched_tokens` is at least
`max_num_seqs`. Second, vLLM admits a sequence only if the running sequences leave tokens of the
budget for it. In later steps, these running sequences need no more tokens than at the admission. So
they continue to leave tokens for the admitted sequence. There are two exceptions: with speculation,
or if a sequence preempts itself, vLLM may give later sequences no tokens for one step.

Source: vLLM v1/core/sched/scheduler.py.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import nextafter
from operator import sub

from replay.engine_config import EngineConfig, ReplayEngineTotals
from replay.job import Blocked, Job
from replay.kv_cache import KvCache, blocks_for
from replay.lockstep import Lockstep
from replay.lora import LoraSlots
from replay.speculation import Drafting, draft_draws
from replay.step_clock import Stall, StepClock, step_noise
from replay.waiting_queue import PriorityQueue

StepListener = Callable[[int, float, int, int, float], None]
"""Receives five numbers of each step: prefill tokens, attention pairs of the prefill, context
tokens that decoding requests read, decoding requests, and the duration in seconds."""

_NEVER = float("inf")
_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class _Step:
    """A step in progress."""

    start: float
    end: float
    prefill_s: float
    stall_s: float
    scale: float
    pairs: float
    """Attention work of the step's prefill, in pairs of tokens."""
    blocked_by: str | None
    """The limit that blocks the queue during the step: a field of `Blocked`, or None."""
    chunks: list[tuple[Job, int, float]]
    """For each prefill chunk: its job, its tokens, and its share of `prefill_s`."""
    drafting: tuple[Job, ...]
    encoder_s: float
    """The part of `prefill_s` that the encoder of images takes."""


def _ignore(*_: float) -> None:
    pass


class ReplayEngine:
    """One engine. `submit` adds jobs, and `advance` returns the finished jobs.

    Args:
        seed: seed of the noise of step times.
        stalls: the engine's stalls in order of time, possibly infinite.
        started_s: time at which the engine was ready. No step begins before this time.
        new_shape_s: additional duration of the first step of each batch shape. It is 0 for a warm
            engine.
    """

    def __init__(
        self,
        config: EngineConfig,
        seed: str,
        stalls: Iterable[Stall] = (),
        started_s: float = 0.0,
        new_shape_s: float = 0.0,
        on_step: StepListener = _ignore,
    ) -> None:
        self.config = config
        self.totals = ReplayEngineTotals()
        self.kv = KvCache(config.num_gpu_blocks, reuse=config.enable_prefix_caching)
        self.clock = StepClock(step_noise(config, seed), stalls, new_shape_s)
        self.loras = LoraSlots(config.max_loras, config.max_cpu_loras)
        self.lost_blocks = 0
        """Number of KV blocks that a fault made unavailable. Blocks that requests hold cannot be
        lost."""
        self._model = config.model
        self._lockstep = Lockstep(self._model, config.block_size)
        self._drafting = Drafting(
            config.num_speculative_tokens,
            self._model,
            draft_draws(seed) if config.num_speculative_tokens else (),
            config.max_model_len,
        )
        self._on_step = on_step
        self._now = self._decided = self._last_start = started_s
        """`_now`: end of the last step. `_decided`: time of the scheduling decision for the current
        step. `_last_start`: start of the last step."""
        self._just_ended = 0
        self._late_seats = 0
        """Number of ended requests whose slots in the batch were still taken when the current step
        was scheduled."""
        self._coming: deque[Job] = deque()
        self._waiting: deque[Job] | PriorityQueue = (
            PriorityQueue() if config.policy == "priority" else deque()
        )
        self._admissions = 0
        self._held: list[Job] = []
        self._running: dict[int, Job] = {}
        self._prefilling: list[Job] = []
        self._step: _Step | None = None
        self._leaving: dict[int, Job] = {}
        """The running jobs that are aborted at the end of the current step, by job number."""
        self.blocked = Blocked()
        """For each limit, the total duration of the steps during which it blocked the queue, in
        seconds."""
        self._longest_step_s = 0.0

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting) + len(self._held)

    @property
    def deferred(self) -> int:
        """Number of waiting requests that cannot be scheduled yet: they wait for a grammar, a KV
        transfer or an adapter slot."""
        return len(self._held)

    @property
    def fetching(self) -> int:
        """Number of waiting requests whose KV cache is being transferred."""
        return sum(job.fetch_s > 0 for job in self._held)

    @property
    def waiting_loras(self) -> int:
        """Number of requests in the queue that need an adapter."""
        return sum(job.lora is not None for job in (*self._waiting, *self._held))

    @property
    def running_loras(self) -> int:
        """Number of requests in the batch that use an adapter."""
        return self.loras.running.total()

    @property
    def running(self) -> int:
        """Number of requests in the batch."""
        return len(self._running)

    @property
    def full(self) -> bool:
        """Whether the engine would reject a new request."""
        return self.outstanding >= self.config.max_num_queued_reqs

    @property
    def next_event_s(self) -> float:
        """Time of the next event, up to which `advance` can be called. It is infinite for an idle
        engine."""
        if self._step is not None:
            return self._step.end
        return nextafter(self._next_start(), _NEVER)

    @property
    def outstanding(self) -> int:
        """Number of requests that have not ended."""
        return len(self._coming) + len(self._waiting) + len(self._held) + len(self._running)

    @property
    def last_step_s(self) -> float:
        """End of the last step, or start of the current step if the engine was idle before."""
        return self._now

    def take_longest_step_s(self) -> float | None:
        """Return the duration of the longest step since the last call, or None if there was no
        step."""
        longest_s, self._longest_step_s = self._longest_step_s, 0.0
        return longest_s or None

    def submit(self, job: Job) -> None:
        """Submit a job. The job's time `queued` may be in the future."""
        if job.prompt_tokens < 1 or job.output_tokens < 1:
            raise ValueError(
                f"prompt_tokens: {job.prompt_tokens}, output_tokens: {job.output_tokens}; "
                "allowed: 1 or more"
            )
        if job.prompt_tokens + job.output_tokens > self.config.max_model_len:
            raise ValueError(
                f"prompt_tokens + output_tokens: {job.prompt_tokens + job.output_tokens}; "
                f"allowed: up to max_model_len ({self.config.max_model_len})"
            )
        if job.lora is not None and not self.config.max_loras:
            raise ValueError(f"lora: {job.lora!r}; allowed: none, because max_loras is 0")
        if job.queued < self._now:
            raise ValueError(f"queued: {job.queued}; allowed: from {self._now}, not in the past")
        job.lease_blocks(self.config.block_size)
        place = len(self._coming)
        while place and self._coming[place - 1].queued > job.queued:
            place -= 1
        self._coming.insert(place, job)

    def advance(self, until: float) -> list[Job]:
        """Run until the virtual time `until`. Jobs that are submitted after this call must not
        arrive before `until`.

        Returns:
            The jobs that ended by `until`, in order of time. These jobs produced their last token
            or were aborted.
        """
        ended: list[Job] = []
        while True:
            if self._step is not None:
                if self._step.end > until:
                    return ended
                self._end_step(self._step, ended)
            self._run_plain_decodes(until)
            start = self._next_start()
            if start >= until:
                return ended
            self._begin_step(start)

    def abort(self, number: int) -> Job | None:
        """Abort a job at the current virtual time. First call `advance` with this time.

        As in vLLM, a job in the batch is aborted between two steps, and returned by `advance`.

        Returns:
            The job if it was not in the batch and is therefore already aborted. None if it is in
            the batch.
        """
        for jobs in (self._coming, self._held, self._waiting):
            for job in jobs:
                if job.number == number:
                    jobs.remove(job)
                    return job
        if (running := self._running.get(number)) is not None:
            self._leaving[number] = running
        return None

    def unfinished(self) -> list[Job]:
        """Return all unfinished jobs, for example to fail them when the engine restarts."""
        return [*self._running.values(), *self._waiting, *self._held, *self._coming]

    def _next_start(self) -> float:
        if self._running or self._waiting:
            return self._now
        next_s = self._coming[0].queued if self._coming else _NEVER
        for job in self._held:
            next_s = min(next_s, job.queued + job.preparing_s)
        return max(self._now, next_s)

    def _begin_step(self, start: float) -> None:
        self._now = start
        ahead = self.config.async_scheduling and bool(self._running)
        self._decided = self._last_start if ahead else start
        self._late_seats = self._just_ended if ahead else 0
        self._let_in(self._decided)
        if not self._running and not self._waiting:
            return  # all arrived requests wait for a grammar, a KV transfer or an adapter
        if self.kv.pinned != self.lost_blocks:
            self.kv.pin(self.lost_blocks)
        eligible = len(self._running) + self.waiting
        limit = self.config.long_prefill_token_threshold if eligible > 1 else 0
        chunks, budget, preempted = self._serve_running(limit or _NO_LIMIT)
        blocked_by, loading_s = self._admit_waiting(
            start, budget, limit or _NO_LIMIT, chunks, preempted
        )
        self._time_step(start, chunks, blocked_by, loading_s)

    def _let_in(self, start: float) -> None:
        """Queue the requests that have arrived. Put a request at the queue's head if the grammar or
        KV transfer for which it waited is ready."""
        while self._coming and self._coming[0].queued <= start:
            job = self._coming.popleft()
            job.handed, job.queued = job.queued, start
            job.blocked = self.blocked
            if job.preparing_s:
                job.hold(job.queued, self.blocked)
                self._held.append(job)
            else:
                self._waiting.append(job)
        if not self._held:
            return
        free, self._held = self._held, []
        for job in reversed(free):
            ready = job.queued + job.preparing_s
            if ready > start or not self.loras.has_room(job.lora):
                self._held.insert(0, job)
            else:
                if job.preparing_s and not job.held_s:
                    job.let_go(ready, self.blocked)
                    self.totals.transfer_s += job.fetch_s
                    self.totals.transferred_tokens += job.fetched_tokens
                else:
                    job.let_go(start, self.blocked)
                self._waiting.appendleft(job)

    def _blocks(self, tokens: int) -> int:
        return blocks_for(tokens, self.config.block_size)

    def _serve_running(self, limit: int) -> tuple[list[tuple[Job, int]], int, bool]:
        """Give the running sequences their tokens and blocks.

        Returns:
            The prefill chunks, the remaining token budget, and whether a sequence was preempted.
        """
        chunks, budget, needed = self._plan(limit)
        preempted = needed > self.kv.free
        if preempted:
            chunks, budget, preempted = self._make_room(limit)
        self.kv.take(self._lockstep.blocks_due)
        for job in self._drafting.jobs.values():
            self.kv.grow(job.lease, self._blocks(self._drafting.covers_tokens(job)))
        for job, tokens in chunks:
            self.kv.grow(job.lease, self._blocks(job.computed_tokens + tokens))
        return chunks, budget, preempted

    def _budget(self) -> int:
        decodes = self._lockstep.size + len(self._drafting.jobs) * (1 + self._drafting.tokens)
        return self.config.max_num_batched_tokens - decodes

    def _plan(self, limit: int) -> tuple[list[tuple[Job, int]], int, int]:
        """Return the prefill chunks, the remaining token budget, and the number of blocks that
        running sequences need."""
        budget, needed = self._budget(), self._lockstep.blocks_due
        for job in self._drafting.jobs.values():
            needed += self._needs(job, 0)
        chunks = []
        for job in self._prefilling:
            tokens = min(job.target_tokens - job.computed_tokens, budget, limit)
            if tokens <= 0:
                break
            chunks.append((job, tokens))
            needed += self._needs(job, tokens)
            budget -= tokens
        return chunks, budget, needed

    def _needs(self, job: Job, tokens: int) -> int:
        if job.joined >= 0:
            return int(self._lockstep.needs_block(job))
        if job.number in self._drafting.jobs:
            covered = self._drafting.covers_tokens(job)
        else:
            covered = job.computed_tokens + tokens
        return max(0, self._blocks(covered) - job.lease.shared - job.lease.own)

    def _make_room(self, limit: int) -> tuple[list[tuple[Job, int]], int, bool]:
        """Serve the running sequences in order. Preempt sequences until there are enough blocks.

        Returns:
            The same values as `_serve_running`.
        """
        budget, preempted = self._budget(), False
        served: dict[int, tuple[Job, int, int]] = {}
        """By job number: the job, its prefill tokens, and its additional blocks, which are taken
        later."""
        reserved = 0
        for job in tuple(self._running.values()):
            if job.number not in self._running:
                continue
            tokens = 0
            if job in self._prefilling:
                tokens = min(job.target_tokens - job.computed_tokens, budget, limit)
                if tokens <= 0:
                    continue
            needs = self._needs(job, tokens)
            while job.number in self._running and reserved + needs > self.kv.free:
                if len(self._running) == 1 and self._find_lost_blocks():
                    continue
                victim = self._victim()
                budget += self._decode_tokens(victim)
                _, chunk, blocks = served.pop(victim.number, (victim, 0, 0))
                budget += chunk
                reserved -= blocks
                self._preempt(victim)
                preempted = True
            if job.number in self._running:
                served[job.number] = (job, tokens, needs)
                reserved += needs
                budget -= tokens
        return [(job, tokens) for job, tokens, _ in served.values() if tokens], budget, preempted

    def _decode_tokens(self, job: Job) -> int:
        if job.joined >= 0:
            return 1
        return 1 + self._drafting.tokens if job.number in self._drafting.jobs else 0

    def _victim(self) -> Job:
        if self.config.policy == "priority":
            return max(self._running.values(), key=lambda job: job.order)
        return next(reversed(self._running.values()))

    def _find_lost_blocks(self) -> bool:
        """Make lost blocks available again, so that a single request always finds enough blocks.
        Return False if no blocks are lost."""
        if not self.kv.pinned:
            return False
        self.lost_blocks = max(0, min(self.lost_blocks, self.kv.pinned) - 64)
        self.kv.pin(self.lost_blocks)
        return True

    def _admit_waiting(
        self,
        start: float,
        budget: int,
        limit: int,
        chunks: list[tuple[Job, int]],
        preempted: bool,
    ) -> tuple[str | None, float]:
        """Admit waiting requests within the step's token budget.

        Return the limit that blocks the queue, and the seconds that loading adapters takes.
        """
        loading_s = 0.0
        while self._waiting:
            job = self._waiting[0]
            if preempted:  # as in vLLM, a step with a preemption admits no request
                return "kv_s", loading_s
            if len(self._running) + self._late_seats >= self.config.max_num_seqs:
                return "seats_s", loading_s
            if budget <= 0:
                return "budget_s", loading_s
            if not self.loras.has_room(job.lora):
                job.hold(start, self.blocked)
                self._held.append(self._waiting.popleft())
                continue
            tokens = self._admit(job, min(budget, limit))
            while not tokens and not self._running and self._find_lost_blocks():
                tokens = self._admit(job, min(budget, limit))
            if not tokens:
                return "kv_s", loading_s
            chunks.append((self._waiting.popleft(), tokens))
            budget -= tokens
            loading_s += self.loras.join(job.lora)
        return None, loading_s

    def _admit(self, job: Job, most: int) -> int:
        """Start or resume a job. Return the number of tokens of the job's first chunk, or 0 if
        there are too few blocks."""
        hits = self.kv.hits(job.lease, (job.target_tokens - 1) // self.config.block_size)
        cached = hits * self.config.block_size
        spared = cached
        if job.scheduled is None and job.fetched_tokens > cached:
            spared = min(job.fetched_tokens, job.target_tokens - 1)
        tokens = min(job.target_tokens - spared, most)
        whole = self._blocks(job.target_tokens) if self.config.scheduler_reserve_full_isl else 0
        if not self.kv.admit(job.lease, hits, self._blocks(spared + tokens), in_all=whole):
            return 0
        job.admitted, self._admissions = self._admissions, self._admissions + 1
        job.computed_tokens = spared
        if job.scheduled is None:
            job.scheduled = self._decided
            job.blocked = Blocked(*map(sub, self.blocked, job.blocked))
            job.cached_tokens = spared
            job.external_cached_tokens = spared - cached
            self.totals.cache_query_tokens += job.target_tokens
            self.totals.cache_hit_tokens += cached
            if self.config.kv_connector:
                self.totals.external_query_tokens += job.target_tokens - cached
                self.totals.external_hit_tokens += spared - cached
        else:
            job.resumed_at.append(self._now)
        self._running[job.number] = job
        self._prefilling.append(job)
        return tokens

    def _time_step(
        self,
        start: float,
        chunks: list[tuple[Job, int]],
        blocked_by: str | None,
        loading_s: float,
    ) -> None:
        model, lockstep, drafting = self._model, self._lockstep, self._drafting
        in_step = lockstep.size + len(drafting.jobs) + len(chunks)
        scale = self.clock.scale(lockstep.count, in_step)
        own_s = model.prefills_s([(tokens, job.computed_tokens) for job, tokens in chunks])
        shares = [
            (job, tokens, seconds * scale + (0.0 if job.encoded else job.encoder_s))
            for (job, tokens), seconds in zip(chunks, own_s, strict=True)
        ]
        encoder_s = sum(job.encoder_s for job, _ in chunks if not job.encoded)
        for job, _ in chunks:
            job.encoded = True  # after a preemption, the images are not encoded again
        prefill_s = sum(share for _, _, share in shares)
        context_tokens = lockstep.context_tokens + drafting.context_tokens
        plain_s = model.step_s(drafting.work_s(), context_tokens, lockstep.size) * scale
        decodes = lockstep.size + len(drafting.jobs)
        prefill_tokens = sum(tokens for _, tokens in chunks)
        stall_s = loading_s + self.clock.stall_s(start, decodes, prefill_tokens)
        self._step = _Step(
            start,
            start + plain_s + prefill_s + stall_s,
            prefill_s,
            stall_s,
            scale,
            sum(tokens * (job.computed_tokens + tokens / 2) for job, tokens in chunks),
            blocked_by,
            shares,
            tuple(drafting.jobs.values()),
            encoder_s,
        )

    def _end_step(self, step: _Step, ended: list[Job]) -> None:
        self._step = None
        self._now, self._last_start = step.end, step.start
        lockstep, drafting = self._lockstep, self._drafting
        took_s = step.end - step.start
        prefill_tokens = sum(tokens for _, tokens, _ in step.chunks)
        context_tokens = lockstep.context_tokens + drafting.context_tokens
        decodes = lockstep.size + len(step.drafting)
        # The encoder's time is left out, because the plugin's fit of the step model omits it too.
        fitted_s = took_s - step.encoder_s
        self._on_step(prefill_tokens, step.pairs, context_tokens, decodes, fitted_s)
        self._count_steps(1, lockstep.size, context_tokens, took_s, took_s)
        self.totals.prefill_attention += step.pairs
        self.totals.decodes += decodes
        self.totals.stall_s += step.stall_s
        self.totals.scheduled_prefill_tokens += prefill_tokens
        self.totals.prefill_steps += prefill_tokens > 0
        if step.blocked_by is not None:
            so_far_s = getattr(self.blocked, step.blocked_by)
            self.blocked = self.blocked._replace(**{step.blocked_by: so_far_s + took_s})
        sequences = decodes + len(step.chunks)
        costs = (took_s, step.prefill_s, step.stall_s, step.scale, prefill_tokens, sequences)
        lockstep.add_step(*costs)
        done = lockstep.ended()
        if step.drafting:
            done += drafting.end_step(*costs, step.drafting, self.totals)
        for job, tokens, own_s in step.chunks:
            job.saw_prefill(prefill_tokens - tokens)
            self._bill_chunk(job, tokens, step, own_s, sequences)
            if self._end_chunk(job, tokens, step, own_s, sequences):
                done.append(job)
        done += self._aborted(done)
        self._just_ended = len(done)
        # As in vLLM, blocks are released in the order of the batch.
        for job in sorted(done, key=lambda each: each.admitted):
            if job.first_token is not None:
                job.last_token, job.last_sequences = self._now, sequences
            self._leave_batch(job)
            ended.append(job)

    def _aborted(self, done: list[Job]) -> list[Job]:
        """Remove the jobs to abort from the decoding or prefilling jobs, and return them.

        A preempted job is not in the batch, so it is aborted only at the end of the next step that
        computes it.
        """
        if not self._leaving:
            return []
        for job in done:
            self._leaving.pop(job.number, None)
        aborted = [job for number, job in self._leaving.items() if number in self._running]
        for job in aborted:
            del self._leaving[job.number]
            job.aborted = self._now
            self._stop_computing(job)
        return aborted

    def _stop_computing(self, job: Job) -> None:
        if job.joined >= 0:
            self._lockstep.leave(job)
            job.last_token = self._now
        elif job.number in self._drafting.jobs:
            self._drafting.leave(job)
            job.last_token = self._now
        else:
            self._prefilling.remove(job)

    def _bill_chunk(self, job: Job, tokens: int, step: _Step, own_s: float, sequences: int) -> None:
        took_s = step.end - step.start
        worked_s = took_s - step.stall_s
        shared_s = self._model.base_s * step.scale / sequences
        cost_s = (own_s + shared_s) * took_s / worked_s if worked_s > 0 else 0.0
        lost = 0 if job.evicted is None else job.lost_tokens - job.computed_tokens
        again = min(max(lost, 0), tokens) / tokens
        job.wasted_s += cost_s * again
        job.billed_s += cost_s * (1 - again)

    def _count_steps(
        self, steps: int, decodes: int, context_tokens: int, busy_s: float, longest_s: float
    ) -> None:
        self._longest_step_s = max(self._longest_step_s, longest_s)
        self.totals.steps += steps
        self.totals.busy_s += busy_s
        self.totals.decode_tokens += steps * decodes
        self.totals.context_tokens += steps * context_tokens

    def _end_chunk(self, job: Job, tokens: int, step: _Step, own_s: float, sequences: int) -> bool:
        """Count a chunk as computed. Return whether the chunk produced its job's last token."""
        job.computed_tokens += tokens
        self.totals.prefill_tokens += tokens
        shares = job.phase
        if job.evicted is None:
            shares.own_s += own_s + self._model.base_s * step.scale
            shares.others_prefill_s += step.prefill_s - own_s
            shares.stall_s += step.stall_s
        elif job.computed_tokens >= job.lost_tokens:
            shares.preempted_s += step.end - job.evicted
            job.evicted = None
        if job.computed_tokens < job.target_tokens:
            return False
        self._prefilling.remove(job)
        job.made_tokens += 1
        if job.last_token is not None:
            job.saw_gap(step.end - job.last_token)
        if job.first_token is None:
            job.first_token, job.first_sequences = step.end, sequences
        if job.made_tokens == job.output_tokens:
            return True
        if self._drafting.tokens:
            self._drafting.join(job)
        else:
            self._lockstep.join(job)
        return False

    def _leave_batch(self, job: Job) -> None:
        del self._running[job.number]
        self.loras.leave(job.lora)
        # Release all blocks of the job: with speculation, the job can hold more blocks than its
        # computed tokens need.
        held = job.lease.shared + job.lease.own
        self.kv.release(job.lease, max(self._blocks(job.computed_tokens), held))

    def _preempt(self, job: Job) -> None:
        self._stop_computing(job)
        self._leave_batch(job)
        self.totals.preemptions += 1
        job.preempted_at.append(self._now)
        if job.evicted is None:
            job.evicted = self._now
            job.lost_tokens = job.computed_tokens
        job.target_tokens = job.prompt_tokens + job.made_tokens
        job.computed_tokens = 0
        self._waiting.appendleft(job)

    def _run_plain_decodes(self, until: float) -> None:
        """Run consecutive steps that contain only decodes, as most steps do.

        The result is the same as with `_begin_step` and `_end_step`, but is computed faster.
        """
        lockstep, clock = self._lockstep, self.clock
        decodes = lockstep.size
        if not decodes or self._prefilling or self._waiting or self._drafting.jobs or clock.cold:
            return
        model, due, block_tokens = self._model, lockstep.due, self.config.block_size
        quiet_until = min(self._coming[0].queued if self._coming else _NEVER, clock.quiet_until)
        for job in self._held:
            quiet_until = min(quiet_until, job.queued + job.preparing_s)
        last = lockstep.first_end - 1
        first = count = lockstep.count
        begun = now = self._now
        context_tokens = lockstep.context_tokens
        fixed_s = model.base_s + model.sequence_s * decodes
        context_token_s = model.context_token_s
        scale_of, on_step = clock.scale, self._on_step
        free = self.kv.free
        scale_sum = scale_steps_sum = 0.0
        durations_s: list[float] = []
        while count < last and now < quiet_until:
            needed = due[count % block_tokens]
            scale = scale_of(count, decodes)
            duration_s = (fixed_s + context_token_s * context_tokens) * scale
            if needed > free or now + duration_s > until:
                break
            free -= needed
            begun, now = now, now + duration_s
            durations_s.append(duration_s)
            on_step(0, 0.0, context_tokens, decodes, duration_s)
            scale_sum += scale
            scale_steps_sum += scale * count
            context_tokens += decodes
            count += 1
        if durations_s:
            steps = count - first
            read = lockstep.context_tokens + decodes * (steps - 1) / 2
            lockstep.scale_sum += scale_sum
            lockstep.scale_steps_sum += scale_steps_sum
            lockstep.add_bill(scale_sum, scale_steps_sum, decodes)
            lockstep.gaps.extend(first + 1, durations_s)
            lockstep.count = count
            lockstep.context_tokens = context_tokens
            self.kv.take(self.kv.free - free)
            self._count_steps(steps, decodes, 0, now - self._now, max(durations_s))
            self.totals.context_tokens += round(read * steps)
            self.totals.decodes += steps * decodes
            self._now, self._last_start, self._just_ended = now, begun, 0
