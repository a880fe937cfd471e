"""Compute the duration of an engine step: γ + α·P + κ·Q + β·C + δ·N + λ·L.

Pure. P is the number of prefill tokens. Q = Σ p·(start + p/2) is the attention work of the prefill
chunks in pairs of tokens, where a chunk of p tokens follows `start` tokens. C is the number of
context tokens that decoding requests read. N is the number of decoding sequences. L is 1 in a step
with prefill, and 0 in any other step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """The coefficients of a step's duration, in seconds."""

    base_s: float
    prefill_token_s: float
    prefill_pair_s: float
    context_token_s: float
    sequence_s: float
    prefill_step_s: float = 0.0
    """The additional time to launch a step with prefill."""
    draft_token_s: float = 0.25e-3
    """For speculation: seconds that the draft head takes to draft one token for all sequences
    together."""

    def prefill_s(self, tokens: int, start: int) -> float:
        """Return the seconds that a prefill chunk of `tokens` tokens, after `start` earlier tokens,
        adds to its step."""
        pairs = tokens * (start + tokens / 2)
        return self.prefill_token_s * tokens + self.prefill_pair_s * pairs

    def prefills_s(self, chunks: Sequence[tuple[int, int]]) -> list[float]:
        """Return the seconds that each prefill chunk adds to a step. The chunks share the step's
        launch time in proportion to their tokens.

        Args:
            chunks: the number of tokens and of earlier tokens of each chunk.
        """
        tokens = sum(count for count, _ in chunks)
        launch_s = self.prefill_step_s / tokens if tokens else 0.0
        return [self.prefill_s(count, start) + launch_s * count for count, start in chunks]

    def step_s(self, prefill_s: float, context_tokens: int, sequences: int) -> float:
        """Return the duration of a step, without noise and stalls."""
        plain_s = self.base_s + self.sequence_s * sequences + self.context_token_s * context_tokens
        return plain_s + prefill_s

    def scaled(self, ratio: float) -> "StepModel":
        """Return the model of an engine whose steps take `ratio` times as long."""
        return StepModel(
            **{name: getattr(self, name) * ratio for name in self.__dataclass_fields__}
        )


def without_drafts(fitted: StepModel, drafted: int) -> StepModel:
    """Remove the time for drafted tokens from a step model that was fitted to steps with
    speculative decoding.

    The fitted coefficient of a decode includes the time to verify drafted tokens. This time is
    removed, because the replay adds it separately. The draft head's time stays in the constant γ.
    """
    if not drafted:
        return fitted
    one_s = (fitted.sequence_s - drafted * fitted.prefill_token_s) / (1 + drafted)
    return replace(fitted, sequence_s=max(one_s, 0.0), draft_token_s=0.0)


EIGHT_B_ON_H100 = StepModel(
    # Every step reads all weights once: 16.1 GB of bf16 at 80 % of 3.35 TB/s take 6.0 ms.
    # Scheduling, launches and sampling add about 1 ms.
    base_s=7.0e-3,
    # 2 FLOP per parameter: 16.1 GFLOP per token, at half of the 989 dense TFLOP/s of bf16.
    prefill_token_s=32e-6,
    # 4 · 32 layers · 4,096 hidden = 524 kFLOP per (token, context token) pair, at 40 % of peak.
    prefill_pair_s=1.3e-9,
    # Keys and values: 2 · 32 layers · 8 heads · 128 · 2 bytes = 128 KiB per context token, at 80 %
    # of 3.35 TB/s.
    context_token_s=0.049e-6,
    # Sampling and the engine core's work on each sequence's output.
    sequence_s=15e-6,
)
"""Llama-3-8B in bf16 on one H100 SXM. Derived from the GPU's peaks, not measured."""
