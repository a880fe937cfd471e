"""One vLLM V1 engine in virtual time: continuous batching, paged KV, chunked prefill.

Pure: what is submitted, the seed and the configuration decide everything. Each step gives
the running sequences one token each, then fills the token budget with prefill in the order
of arrival. A sequence that needs a block when none is free costs the newest one its place:
it is preempted, and recomputed later from the head of the queue.

A step costs O(1) whatever the number of decodes. They advance in lockstep, so a sequence's
tokens are a difference of step counts, its next block is due when the count reaches its
remainder modulo the block, and what other requests' prefill cost it is a difference of
running sums.

Source: vLLM v1/core/sched/scheduler.py.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import sub

from simulator.gaps import LongestSince
from simulator.job import Blocked, Job, Sums
from simulator.kv_cache import BLOCK_TOKENS, KvCache, blocks_for
from simulator.step_model import EIGHT_B_ON_H100, StepModel

_LAST_IN_BLOCK = BLOCK_TOKENS - 1
_NOISE_STEPS = 4096
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The engine arguments that matter to latency, named as vLLM names them."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_model_len: int = 32_768
    # (80 GB · 0.9 − 16.1 GB of weights − 3 GB of activations) / 2 MiB a block.
    num_gpu_blocks: int = 25_000
    enable_prefix_caching: bool = True
    step: StepModel = EIGHT_B_ON_H100
    step_noise_ratio: float = 0.03

    def __post_init__(self) -> None:
        for key in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "num_gpu_blocks"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: {getattr(self, key)}; allowed: 1 or more")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens: {self.max_num_batched_tokens}; "
                f"allowed: at least max_num_seqs ({self.max_num_seqs})"
            )
        if self.num_gpu_blocks < blocks_for(self.max_model_len):
            raise ValueError(
                f"num_gpu_blocks: {self.num_gpu_blocks}; allowed: at least "
                f"{blocks_for(self.max_model_len)}, one request of max_model_len "
                f"({self.max_model_len})"
            )
        if not 0 <= self.step_noise_ratio < 1:
            raise ValueError(
                f"step_noise_ratio: {self.step_noise_ratio}; allowed: from 0 to below 1"
            )


@dataclass(frozen=True, slots=True)
class Stall:
    """The engine stands still for a time, whatever work it has."""

    at_s: float
    for_s: float


@dataclass(slots=True)
class EngineTotals:
    """What the engine has counted since it started."""

    steps: int = 0
    busy_s: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    cache_query_tokens: int = 0
    cache_hit_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class _Step:
    """A step that has begun and not ended."""

    start: float
    end: float
    decodes: int
    prefill_s: float
    stall_s: float
    scale: float
    blocked_by: str | None
    """What keeps the queue from moving until it ends: a field of `Blocked`."""
    chunks: list[tuple[Job, int, float]]
    """Job, tokens, and their own share of `prefill_s`."""


class Engine:
    """One engine. Submit in the order of `queued`, then `advance` to get what has ended.

    Args:
        config: its arguments.
        seed: decides the noise of its steps.
        stalls: when it stands still, in order of time; may be endless.
    """

    def __init__(self, config: EngineConfig, seed: str, stalls: Iterable[Stall] = ()) -> None:
        self.config = config
        self.totals = EngineTotals()
        self.kv = KvCache(config.num_gpu_blocks, reuse=config.enable_prefix_caching)
        noise = random.Random(seed)
        self._noise = [
            noise.lognormvariate(0.0, config.step_noise_ratio) for _ in range(_NOISE_STEPS)
        ]
        self._stalls = iter(stalls)
        self._next_stall = next(self._stalls, None)
        self._now = 0.0
        self._coming: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._prefilling: list[Job] = []
        self._step: _Step | None = None
        self._count = 0
        self._decodes = 0
        self._context_tokens = 0
        self._due = [0] * BLOCK_TOKENS
        """How many decodes need a block when the step count has this remainder."""
        self._ends: list[tuple[int, int, int, Job]] = []
        """Heap of the step count at which a decode makes its last token."""
        self._gaps = LongestSince()
        self._prefills = LongestSince()
        """Of the steps the prompt tokens that were computed in them."""
        self._blocked = Blocked()
        self._prefill_sum_s = 0.0
        self._stall_sum_s = 0.0
        self._scale_sum = 0.0
        self._scale_steps_sum = 0.0
        self._longest_step_s = 0.0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def outstanding(self) -> int:
        """Requests that have not ended."""
        return len(self._coming) + len(self._waiting) + len(self._running)

    def take_longest_step_s(self) -> float | None:
        """The longest step ended since this was last asked; None where none ended."""
        longest_s, self._longest_step_s = self._longest_step_s, 0.0
        return longest_s or None

    def submit(self, job: Job) -> None:
        """Hand over a job; `queued` may lie ahead."""
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
        if self._coming and job.queued < self._coming[-1].queued:
            raise ValueError(
                f"queued: {job.queued}; allowed: from {self._coming[-1].queued}, in order"
            )
        self._coming.append(job)

    def advance(self, until: float) -> list[Job]:
        """Run to the virtual instant `until`; nothing may be submitted before it afterwards.

        Returns: the jobs whose last token was made by then, in that order.
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

    def _next_start(self) -> float:
        if self._running or self._waiting:
            return self._now
        if self._coming:
            return max(self._now, self._coming[0].queued)
        return _NEVER

    def _begin_step(self, start: float) -> None:
        self._now = start
        while self._coming and self._coming[0].queued <= start:
            job = self._coming.popleft()
            job.blocked = self._blocked
            self._waiting.append(job)
        preempted = False
        while self._due[self._count & _LAST_IN_BLOCK] > self.kv.free:
            self._preempt_newest()
            preempted = True
        self.kv.take(self._due[self._count & _LAST_IN_BLOCK])
        budget = self.config.max_num_batched_tokens - self._decodes
        chunks: list[tuple[Job, int]] = []
        # A prefill that has begun is the newest of all: it took what the budget had left.
        for job in tuple(self._prefilling):
            tokens = min(job.target_tokens - job.computed_tokens, budget)
            if not tokens:
                break
            if not self.kv.grow(job.lease, blocks_for(job.computed_tokens + tokens)):
                self._preempt_newest()
                preempted = True
                break
            chunks.append((job, tokens))
            budget -= tokens
        # As vLLM does: a step that had to preempt admits no one.
        blocked_by = None
        while self._waiting and blocked_by is None:
            if preempted:
                blocked_by = "kv_s"
            elif len(self._running) >= self.config.max_num_seqs:
                blocked_by = "seats_s"
            elif not budget:
                blocked_by = "budget_s"
            elif tokens := self._admit(self._waiting[0], budget):
                chunks.append((self._waiting.popleft(), tokens))
                budget -= tokens
            else:
                blocked_by = "kv_s"
        self._time_step(start, chunks, blocked_by)

    def _admit(self, job: Job, budget: int) -> int:
        """Start or resume a job with its first chunk; 0 where its blocks are not to be had."""
        hits = self.kv.hits(job.lease, (job.target_tokens - 1) // BLOCK_TOKENS)
        cached = hits * BLOCK_TOKENS
        tokens = min(job.target_tokens - cached, budget)
        if not self.kv.admit(job.lease, hits, blocks_for(cached + tokens)):
            return 0
        job.computed_tokens = cached
        if job.scheduled is None:
            job.scheduled = self._now
            job.blocked = Blocked(*map(sub, self._blocked, job.blocked))
            job.cached_tokens = cached
            self.totals.cache_query_tokens += job.target_tokens
            self.totals.cache_hit_tokens += cached
        else:
            job.resumed_at.append(self._now)
        self._running[job.number] = job
        self._prefilling.append(job)
        return tokens

    def _time_step(
        self, start: float, chunks: list[tuple[Job, int]], blocked_by: str | None
    ) -> None:
        model = self.config.step
        scale = self._noise[self._count % _NOISE_STEPS]
        shares = [
            (job, tokens, model.prefill_s(tokens, job.computed_tokens) * scale)
            for job, tokens in chunks
        ]
        prefill_s = sum(share for _, _, share in shares)
        plain_s = model.step_s(0.0, self._context_tokens, self._decodes) * scale
        stall_s = 0.0
        while self._next_stall is not None and self._next_stall.at_s <= start:
            stall_s = max(stall_s, self._next_stall.at_s + self._next_stall.for_s - start)
            self._next_stall = next(self._stalls, None)
        self._step = _Step(
            start,
            start + plain_s + prefill_s + stall_s,
            self._decodes,
            prefill_s,
            stall_s,
            scale,
            blocked_by,
            shares,
        )

    def _end_step(self, step: _Step, ended: list[Job]) -> None:
        self._step = None
        self._now = step.end
        duration_s = step.end - step.start
        self._prefill_sum_s += step.prefill_s
        self._stall_sum_s += step.stall_s
        self._scale_sum += step.scale
        self._scale_steps_sum += step.scale * self._count
        self._count_steps(1, step.decodes, duration_s, duration_s)
        if step.blocked_by is not None:
            so_far_s = getattr(self._blocked, step.blocked_by)
            self._blocked = self._blocked._replace(**{step.blocked_by: so_far_s + duration_s})
        prefill_tokens = sum(tokens for _, tokens, _ in step.chunks)
        if step.decodes:
            self._gaps.add(self._count, duration_s)
            if prefill_tokens:
                self._prefills.add(self._count, prefill_tokens)
        else:
            self._gaps.clear()
            self._prefills.clear()
        self._end_decodes(ended)
        for job, tokens, own_s in step.chunks:
            job.saw_prefill(prefill_tokens - tokens)
            self._end_chunk(job, tokens, step, own_s, ended)

    def _count_steps(self, steps: int, decodes: int, busy_s: float, longest_s: float) -> None:
        self._count += steps
        self._context_tokens += steps * decodes
        self._longest_step_s = max(self._longest_step_s, longest_s)
        self.totals.steps += steps
        self.totals.busy_s += busy_s
        self.totals.decode_tokens += steps * decodes

    def _end_decodes(self, ended: list[Job]) -> None:
        while self._ends and self._ends[0][0] <= self._count:
            _, _, joined, job = heapq.heappop(self._ends)
            if job.joined != joined:
                continue  # it was preempted after it was put here
            self._leave_decodes(job)
            self._end(job, ended)

    def _end_chunk(
        self, job: Job, tokens: int, step: _Step, own_s: float, ended: list[Job]
    ) -> None:
        job.computed_tokens += tokens
        self.totals.prefill_tokens += tokens
        shares = job.phase
        if job.evicted is None:
            shares.own_s += own_s + self.config.step.base_s * step.scale
            shares.others_prefill_s += step.prefill_s - own_s
            shares.stall_s += step.stall_s
        elif job.computed_tokens >= job.lost_tokens:
            shares.preempted_s += step.end - job.evicted
            job.evicted = None
        if job.computed_tokens < job.target_tokens:
            return
        self._prefilling.remove(job)
        job.made_tokens += 1
        if job.last_token is not None:
            job.saw_gap(step.end - job.last_token)
        if job.first_token is None:
            job.first_token = step.end
        if job.made_tokens == job.output_tokens:
            self._end(job, ended)
        else:
            self._join_decodes(job)

    def _end(self, job: Job, ended: list[Job]) -> None:
        job.last_token = self._now
        del self._running[job.number]
        self.kv.release(job.lease, blocks_for(job.computed_tokens))
        ended.append(job)

    def _join_decodes(self, job: Job) -> None:
        job.joined = self._count
        job.before = self._sums
        self._decodes += 1
        self._context_tokens += job.computed_tokens
        self._due[(self._count - job.computed_tokens) & _LAST_IN_BLOCK] += 1
        last = self._count + job.output_tokens - job.made_tokens
        heapq.heappush(self._ends, (last, job.number, job.joined, job))

    def _leave_decodes(self, job: Job) -> None:
        self._due[(job.joined - job.computed_tokens) & _LAST_IN_BLOCK] -= 1
        steps = self._count - job.joined
        job.made_tokens += steps
        job.computed_tokens += steps
        self._share_decodes(job, job.computed_tokens - steps)
        gap_s = self._gaps.longest_s(job.joined)
        if gap_s is not None:
            job.saw_gap(gap_s)
        job.saw_prefill(int(self._prefills.longest_s(job.joined) or 0))
        self._decodes -= 1
        self._context_tokens -= job.computed_tokens
        job.joined = -1

    def _share_decodes(self, job: Job, context_tokens: int) -> None:
        """Split the steps since the job joined the decodes, then with so much context."""
        if job.before is None:
            raise AssertionError(f"job {job.number} leaves the decodes without having joined")
        model, before, now = self.config.step, job.before, self._sums
        scale = now.scale - before.scale
        grown = now.scale_steps - before.scale_steps - job.joined * scale
        job.decode.own_s += (model.base_s + model.sequence_s) * scale + model.context_token_s * (
            context_tokens * scale + grown
        )
        job.decode.others_prefill_s += now.prefill_s - before.prefill_s
        job.decode.stall_s += now.stall_s - before.stall_s
        job.before = None

    @property
    def _sums(self) -> Sums:
        return Sums(self._prefill_sum_s, self._stall_sum_s, self._scale_sum, self._scale_steps_sum)

    def _preempt_newest(self) -> None:
        job = self._running.pop(next(reversed(self._running)))
        if job.joined >= 0:
            self._leave_decodes(job)
            job.last_token = self._now
        else:
            self._prefilling.remove(job)
        self.kv.release(job.lease, blocks_for(job.computed_tokens))
        self.totals.preemptions += 1
        job.preempted_at.append(self._now)
        if job.evicted is None:
            job.evicted = self._now
            job.lost_tokens = job.computed_tokens
        job.target_tokens = job.prompt_tokens + job.made_tokens
        job.computed_tokens = 0
        self._waiting.appendleft(job)

    def _run_plain_decodes(self, until: float) -> None:
        """Run the steps in which decodes are all that happens: most of an engine's life.

        The same steps that `_begin_step` and `_end_step` would make, without their setting up.
        """
        if not self._decodes or self._prefilling or self._waiting:
            return
        model, noise, due, decodes = self.config.step, self._noise, self._due, self._decodes
        quiet_until = min(
            self._coming[0].queued if self._coming else _NEVER,
            self._next_stall.at_s if self._next_stall is not None else _NEVER,
        )
        last = self._ends[0][0] - 1
        first = count = self._count
        now, context_tokens = self._now, self._context_tokens
        fixed_s = model.base_s + model.sequence_s * decodes
        context_token_s = model.context_token_s
        free = self.kv.free
        scale_sum = scale_steps_sum = 0.0
        durations_s: list[float] = []
        while count < last and now < quiet_until:
            needed = due[count & _LAST_IN_BLOCK]
            scale = noise[count % _NOISE_STEPS]
            duration_s = (fixed_s + context_token_s * context_tokens) * scale
            if needed > free or now + duration_s > until:
                break
            free -= needed
            now += duration_s
            durations_s.append(duration_s)
            scale_sum += scale
            scale_steps_sum += scale * count
            context_tokens += decodes
            count += 1
        if durations_s:
            self._scale_sum += scale_sum
            self._scale_steps_sum += scale_steps_sum
            self.kv.take(self.kv.free - free)
            self._gaps.extend(first + 1, durations_s)
            self._count_steps(count - first, decodes, now - self._now, max(durations_s))
            self._now = now
