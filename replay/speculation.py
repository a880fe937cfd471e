"""Simulate speculative decoding: each step drafts a few tokens, and some of them are accepted.

Pure. In each step, a sequence gets all drafted tokens before the first rejected token, plus one
more token.
"""

import random
from collections.abc import Sequence
from typing import Final

from replay.engine_config import ReplayEngineTotals
from replay.job import Job
from replay.step_model import StepModel

DRAWS: Final = 1 << 16


def draft_draws(seed: str) -> list[float]:
    """Return random numbers in [0, 1) that decide which drafted tokens are accepted."""
    chance = random.Random(f"{seed}:drafts")
    return [chance.random() for _ in range(DRAWS)]


def draw_at(number: int, made_tokens: int, place: int) -> int:
    """Return the index of the random number that decides on a drafted token.

    The index does not depend on the order of the requests.
    """
    return (number * 40_503 + made_tokens * 31 + place) % DRAWS


class Drafting:
    """The sequences of one engine with speculative decoding.

    Args:
        tokens: number of drafted tokens per step, or 0.
        draws: the result of `draft_draws`. It is empty without speculation.
        max_model_len: maximum number of tokens of a sequence. A sequence never holds blocks for
            more tokens.
    """

    def __init__(
        self, tokens: int, model: StepModel, draws: Sequence[float], max_model_len: int
    ) -> None:
        self.tokens = tokens
        self._model = model
        self._draws = draws
        self._max_model_len = max_model_len
        self.jobs: dict[int, Job] = {}
        self.context_tokens = 0

    @property
    def verify_s(self) -> float:
        """Seconds that one sequence's drafted tokens add to a step. Drafted tokens are computed
        like a prompt."""
        return self.tokens * (self._model.prefill_token_s + self._model.sequence_s)

    @property
    def drafting_s(self) -> float:
        """Seconds that drafting adds to a step, for all sequences."""
        return self.tokens * self._model.draft_token_s if self.jobs else 0.0

    def work_s(self) -> float:
        """Return the seconds that the drafting sequences add to a step, without the time to read
        their context."""
        return self.drafting_s + len(self.jobs) * (self._model.sequence_s + self.verify_s)

    def join(self, job: Job) -> None:
        """Add a job that has just produced its first token, or its next token after a
        preemption."""
        self.jobs[job.number] = job
        self.context_tokens += job.computed_tokens

    def leave(self, job: Job) -> None:
        """Remove a job."""
        del self.jobs[job.number]
        self.context_tokens -= job.computed_tokens

    def covers_tokens(self, job: Job) -> int:
        """Return the number of tokens for which a job must hold blocks in the next step."""
        return min(job.computed_tokens + 1 + self.tokens, self._max_model_len)

    def end_step(
        self,
        took_s: float,
        prefill_s: float,
        stall_s: float,
        scale: float,
        prefill_tokens: int,
        sequences: int,
        taking_part: tuple[Job, ...],
        totals: ReplayEngineTotals,
    ) -> list[Job]:
        """Add the tokens of a step to the sequences. Remove and return finished sequences."""
        model, done = self._model, []
        worked_s = took_s - stall_s
        paid = scale * took_s / worked_s if worked_s > 0 else 0.0
        paid_each_s = (
            model.base_s / sequences
            + self.tokens * model.draft_token_s / len(taking_part)
            + model.sequence_s
            + self.verify_s
        )
        each_s = model.base_s + self.tokens * model.draft_token_s + model.sequence_s + self.verify_s
        for job in taking_part:
            accepted = 0
            while (
                accepted < self.tokens
                and self._draws[draw_at(job.number, job.made_tokens, accepted)] < job.acceptance
            ):
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
