"""Simulate sequences that decode one token per step, in O(1) per step for any number of sequences.
Pure.

All sequences get one token in each step. So the number of output tokens of a sequence is the
difference of two step counts. A sequence needs a new block whenever the step count modulo the block
size has a fixed value. The time that other sequences add to a sequence's steps is the difference of
two running sums.
"""

import heapq

from replay.job import Billed, Job, StepSums
from replay.longest_gap import LongestSince
from replay.step_model import StepModel


class Lockstep:
    """The decoding sequences of one engine."""

    def __init__(self, model: StepModel, block_tokens: int) -> None:
        self.count = 0
        self.size = 0
        self.context_tokens = 0
        self.due = [0] * block_tokens
        """Number of sequences that need a block at each value of (step count modulo block size)."""
        self.gaps = LongestSince()
        self.prefill_sum_s = 0.0
        self.stall_sum_s = 0.0
        self.scale_sum = 0.0
        self.scale_steps_sum = 0.0
        self.billed = Billed()
        self._model = model
        self._prefills = LongestSince()
        """Stores the number of prompt tokens computed in each step, and finds the largest number
        since a given step."""
        self._ends: list[tuple[int, int, int, Job]] = []
        """Heap of the sequences, sorted by the step count at which they get their last token."""

    @property
    def blocks_due(self) -> int:
        """Number of blocks that the next step needs."""
        return self.due[self.count % len(self.due)]

    def computed_tokens(self, job: Job) -> int:
        """Return the number of tokens that a decoding job has computed so far."""
        return job.computed_tokens + self.count - job.joined

    def needs_block(self, job: Job) -> bool:
        """Return whether a decoding job needs a block in the next step."""
        return self.computed_tokens(job) % len(self.due) == 0

    @property
    def first_end(self) -> int:
        """The lowest step count at which a sequence ends. There must be at least one sequence."""
        return self._ends[0][0]

    def add_step(
        self,
        took_s: float,
        prefill_s: float,
        stall_s: float,
        scale: float,
        prefill_tokens: int,
        sequences: int,
    ) -> None:
        """Count a step of all decoding sequences. `sequences` includes sequences in prefill."""
        self.prefill_sum_s += prefill_s
        self.stall_sum_s += stall_s
        self.scale_sum += scale
        self.scale_steps_sum += scale * self.count
        worked_s = took_s - stall_s
        paid = scale * took_s / worked_s if worked_s > 0 else 0.0
        self.add_bill(paid, paid * self.count, sequences)
        self.count += 1
        self.context_tokens += self.size
        if self.size:
            self.gaps.add(self.count, took_s)
            if prefill_tokens:
                self._prefills.add(self.count, prefill_tokens)
        else:
            self.gaps.clear()
            self._prefills.clear()

    def add_bill(self, scale: float, scale_steps: float, sequences: int) -> None:
        """Divide the billed time of one step, or of several steps with the same sequences, equally
        among these sequences. `sequences` is their number."""
        each, scales, steps = self.billed
        mine = scale / sequences if sequences else 0.0
        self.billed = Billed(each + mine, scales + scale, steps + scale_steps)

    def join(self, job: Job) -> None:
        """Add a job that has just produced its first token, or its next token after a
        preemption."""
        job.joined = self.count
        job.before = self._sums
        self.size += 1
        self.context_tokens += job.computed_tokens
        self.due[(self.count - job.computed_tokens) % len(self.due)] += 1
        last = self.count + job.output_tokens - job.made_tokens
        heapq.heappush(self._ends, (last, job.number, job.joined, job))

    def ended(self) -> list[Job]:
        """Remove and return the sequences that have produced their last token."""
        done = []
        while self._ends and self._ends[0][0] <= self.count:
            _, _, joined, job = heapq.heappop(self._ends)
            if job.joined == joined:  # skip the entries of jobs that were preempted meanwhile
                self.leave(job)
                done.append(job)
        return done

    def leave(self, job: Job) -> None:
        """Remove a job, and update its token counts and its shares of step time."""
        self.due[(job.joined - job.computed_tokens) % len(self.due)] -= 1
        steps = self.count - job.joined
        job.made_tokens += steps
        job.computed_tokens += steps
        self._share(job, job.computed_tokens - steps)
        gap_s = self.gaps.longest_s(job.joined)
        if gap_s is not None:
            job.saw_gap(gap_s)
        job.saw_prefill(int(self._prefills.longest_s(job.joined) or 0))
        self.size -= 1
        self.context_tokens -= job.computed_tokens
        job.joined = -1

    def _share(self, job: Job, context_tokens: int) -> None:
        """Add to the job its shares of the time of all steps since it joined. `context_tokens` is
        the number of tokens that the job had computed when it joined."""
        if job.before is None:
            raise AssertionError(f"job {job.number} leaves the decodes without having joined")
        model, before, now = self._model, job.before, self._sums
        scale = now.scale - before.scale
        grown = now.scale_steps - before.scale_steps - job.joined * scale
        job.decode.own_s += (model.base_s + model.sequence_s) * scale + model.context_token_s * (
            context_tokens * scale + grown
        )
        each, paid, paid_steps = (a - b for a, b in zip(now.billed, before.billed, strict=True))
        read = context_tokens * paid + paid_steps - job.joined * paid
        job.billed_s += model.base_s * each + model.sequence_s * paid + model.context_token_s * read
        job.decode.others_prefill_s += now.prefill_s - before.prefill_s
        job.decode.stall_s += now.stall_s - before.stall_s
        job.before = None

    @property
    def _sums(self) -> StepSums:
        return StepSums(
            self.prefill_sum_s,
            self.stall_sum_s,
            self.scale_sum,
            self.scale_steps_sum,
            self.billed,
        )
