"""Splits the duration of a step among its requests, in proportion to each request's work in it.

    w = γ/N + (α + λ/P)·p + κ·q + β·c + δ·d        share = D · w / Σ w

w: the request's weight. p, q, c, d: the request's parts of P, Q, C and N of `step_model.py`. N
here: the number of requests in the step. D: the step's duration. λ: the time to launch a prefill,
split by prompt tokens.

The shares sum to the whole duration, including stalls. Before the step model is fitted, the weights
are the numbers of tokens. Work that is computed again is wasted.

This module is pure. With speculative decoding, shares are slightly too low. A context then grows by
several tokens per step, but only one token is counted.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tailspan_vllm.engine_core.step_model import StepWork

ROUNDING = 0.5
"""A smaller difference between two numbers of tokens is a rounding error of `Chunk.start`."""

BY_TOKENS = (0.0, 1.0, 0.0, 0.0, 1.0, 0.0)
"""The weights before the model is fitted."""


@dataclass(slots=True)
class Chunk:
    """The part of a request's prefill that was computed in one step."""

    step: int
    tokens: int
    attention: float
    encoder_ratio: float = 0.0
    """The request's share of the step's encoder work, from 0 to 1."""

    @property
    def start(self) -> float:
        """The number of the request's tokens before this chunk."""
        return self.attention / self.tokens - self.tokens / 2 if self.tokens else 0.0


@dataclass(slots=True)
class Decoding:
    """Consecutive steps (first, last]. The request received a token in each of these steps."""

    first: int
    context: int
    last: int | None = None


class BilledTime(NamedTuple):
    """Engine time of a request in seconds: useful work, and work that was computed again."""

    billed_s: float
    wasted_s: float


@dataclass(slots=True)
class Billing:
    """Running sums over the steps. The `forgotten` oldest steps were dropped."""

    forgotten: int = 0
    _sums: tuple["array[float]", ...] = field(
        default_factory=lambda: tuple(array("d") for _ in range(6))
    )
    _running: list[float] = field(default_factory=lambda: [0.0] * 6)

    def enter(
        self,
        step: int,
        work: StepWork,
        sequences: int,
        duration: float,
        coefficients: Sequence[float],
    ) -> None:
        """Add one step. Steps are numbered consecutively.

        Args:
            duration: the step's duration in seconds.
            coefficients: (γ, α, κ, β, δ, λ) of the step model, or `BY_TOKENS`.
        """
        gamma, alpha, kappa, beta, delta, launch = coefficients
        p, q, c, n = work
        if p:
            alpha += launch / p
        whole = gamma + alpha * p + kappa * q + beta * c + delta * n
        scale = duration / whole if whole > 0 else 0.0
        each = scale * gamma / sequences if sequences else 0.0
        read = scale * beta
        added = (each, scale * alpha, scale * kappa, read, read * step, scale * delta)
        running = self._running
        for index, value in enumerate(added):
            running[index] += value
            self._sums[index].append(running[index])

    def forget(self, count: int) -> None:
        """Drop the sums of the `count` oldest steps."""
        for column in self._sums:
            del column[:count]
        self.forgotten += count

    def of(
        self,
        chunks: Iterable[Chunk],
        decodings: Sequence[Decoding],
        last: int,
        evicted_after: Sequence[int] = (),
    ) -> BilledTime:
        """A request's billed time up to step `last`. The sums of all the request's steps must still
        be stored.

        After a preemption, all work up to the tokens reached before is wasted, because the
        preemption discarded this KV cache. If the KV cache could not be loaded, only the tokens
        that the request itself had computed are wasted. It would not have computed the others if
        the load had succeeded, but no work on them was lost.

        Args:
            evicted_after: the last step before each preemption.
        """
        billed = wasted = reached = end = 0.0
        computed_from = attempt_from = inf
        for chunk in chunks:
            if chunk.step > last or not chunk.tokens:
                continue
            for run in decodings:
                if run.last is not None and run.last < chunk.step:
                    reached = max(reached, run.context + run.last - run.first)
            each, alpha, kappa, _, _, _ = self._between(chunk.step - 1, chunk.step)
            share = each + alpha * chunk.tokens + kappa * chunk.attention
            start = chunk.start
            if evicted_after and evicted_after[0] < chunk.step:
                computed_from = 0.0
            elif end - start > ROUNDING:  # the load of the KV cache failed
                computed_from, attempt_from = min(computed_from, attempt_from), start
            attempt_from, end = min(attempt_from, start), start + chunk.tokens
            repeated = min(end, reached) - max(start, computed_from)
            again = max(repeated, 0.0) / chunk.tokens
            wasted += share * again
            billed += share * (1 - again)
            reached = max(reached, end)
        for run in decodings:
            end = last if run.last is None else min(run.last, last)
            if end > run.first:
                each, _, _, read, read_index, delta = self._between(run.first, end)
                grown = read_index - (run.first + 1) * read
                billed += each + delta + run.context * read + grown
        return BilledTime(billed, wasted)

    def _between(self, after: int, upto: int) -> list[float]:
        low, high = after - self.forgotten, upto - self.forgotten
        return [column[high] - (column[low] if low >= 0 else 0.0) for column in self._sums]
