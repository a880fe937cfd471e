"""Speculative decoding: each step drafts a few tokens, and some of them are accepted.

Pure. Sequences advance at different speeds, so they are processed one by one. A draft's tokens are
accepted up to the first rejection; the step itself adds one more.
"""

import random

from simulator.engine_config import EngineTotals
from simulator.job import Job
from simulator.kv_cache import KvCache, blocks_for
from simulator.step_model import StepModel

DRAFT_TOKEN_S = 0.25e-3
"""Time of the draft head for one token of every sequence; it is much smaller than the model."""


class Drafting:
    """The sequences of one engine that decode by speculation.

    Args:
        tokens: drafted per step; 0 disables speculation.
        model: the step model.
        chance: decides which tokens are accepted.
    """

    def __init__(self, tokens: int, model: StepModel, chance: random.Random) -> None:
        self.tokens = tokens
        self._model = model
        self._chance = chance
        self.jobs: dict[int, Job] = {}
        self.context_tokens = 0

    @property
    def verify_s(self) -> float:
        """Time that one sequence's drafted tokens add to a step: they are computed like a
        prompt."""
        return self.tokens * (self._model.prefill_token_s + self._model.sequence_s)

    @property
    def drafting_s(self) -> float:
        """Time that drafting adds to a step, for all sequences together."""
        return self.tokens * DRAFT_TOKEN_S if self.jobs else 0.0

    def work_s(self) -> float:
        """Time that these sequences add to a step, without reading their context."""
        return self.drafting_s + len(self.jobs) * (self._model.sequence_s + self.verify_s)

    def join(self, job: Job) -> None:
        """Add a job with its first token, or with a new one after a preemption."""
        self.jobs[job.number] = job
        self.context_tokens += job.computed_tokens

    def leave(self, job: Job) -> None:
        """Remove a job."""
        del self.jobs[job.number]
        self.context_tokens -= job.computed_tokens

    def hold_blocks(self, kv: KvCache) -> bool:
        """Allocate blocks for what the next step may produce; False if there are too few."""
        return all(
            kv.grow(job.lease, blocks_for(job.computed_tokens + 1 + self.tokens))
            for job in self.jobs.values()
        )

    def end_step(
        self,
        took_s: float,
        prefill_s: float,
        stall_s: float,
        scale: float,
        prefill_tokens: int,
        sequences: int,
        taking_part: tuple[Job, ...],
        totals: EngineTotals,
    ) -> list[Job]:
        """Give the sequences of a step their tokens; finished ones leave."""
        model, done = self._model, []
        worked_s = took_s - stall_s
        paid = scale * took_s / worked_s if worked_s > 0 else 0.0
        paid_each_s = (
            model.base_s / sequences
            + self.tokens * DRAFT_TOKEN_S / len(taking_part)
            + model.sequence_s
            + self.verify_s
        )
        each_s = model.base_s + self.tokens * DRAFT_TOKEN_S + model.sequence_s + self.verify_s
        for job in taking_part:
            accepted = 0
            while accepted < self.tokens and self._chance.random() < job.acceptance:
                accepted += 1
            made = min(1 + accepted, job.output_tokens - job.made_tokens)
            job.decode.own_s += (each_s + model.context_token_s * job.computed_tokens) * scale
            job.billed_s += (paid_each_s + model.context_token_s * job.computed_tokens) * paid
            job.decode.others_prefill_s += prefill_s
            job.decode.stall_s += stall_s
            job.saw_gap(took_s)
            job.saw_prefill(prefill_tokens)
            job.made_tokens += made
            job.computed_tokens += made
            self.context_tokens += made
            totals.decode_tokens += made
            totals.drafts += 1
            totals.draft_tokens += self.tokens
            totals.accepted_tokens += accepted
            if job.made_tokens == job.output_tokens:
                self.leave(job)
                done.append(job)
        return done
