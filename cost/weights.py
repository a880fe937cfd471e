"""Compute the relative cost of computed prompt tokens, cached prompt tokens and output tokens.

A step model predicts the duration of an engine step from its work. With a step model, the weight of
a token is the step time that is spent on tokens of its type, divided by their number:

    in  = (α·P + κ·Q + λ·L + γ·S·r/(r + N)) / number of prompt tokens that were computed
    out = (β·C + δ·N + γ·S·N/(r + N)) / number of tokens that were produced

Greek letters are the step model's coefficients. The others are:

- P: prompt tokens that were computed
- Q: the attention work of these tokens
- L: steps with prefill
- C: context tokens that decodes read
- S: steps
- N: decoding sequences, summed over the steps
- r: requests

The sequences of a step share its fixed time γ. Each request counts as one sequence in prefill.

The weights of an hour depend only on the data of this hour. So the cost of an hour is divided in
the same way, whatever window is requested. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cost.replica_hours import Key, ReplicaHours
from cost.uptime import Hour, Uptime
from telemetry.billing_data import COEFFICIENTS, BillingCells

_REQUIRED = frozenset(COEFFICIENTS) - {"step_model_per_prefill_step_s"}
"""The coefficients that every plugin reports. Older plugins do not report λ."""
_REQUIRED_WORK = frozenset(("decodes_total", "prefill_attention_total"))


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """The weight of one token of each type. Only the ratios matter."""

    uncached: float
    cached: float
    output: float
    fitted: bool
    in_share: float | None = None
    """Prefill's share of the step time, or None without a step model. If no request was received in
    an hour, the cost of the hour is divided by this share."""
    fixed_in_share: float | None = None
    """Prefill's share of the steps' fixed time: r/(r + N)."""

    def of(self, prompt: float, cached: float, output: float) -> tuple[float, float]:
        """The weights of a request's input and output tokens."""
        uncached = max(0.0, prompt - cached)
        return self.uncached * uncached + self.cached * cached, self.output * output


BY_PRICE = TokenWeights(uncached=1.0, cached=0.125, output=1.75, fitted=False)
"""The weights that are used without a step model. They are the medians of managed APIs' prices for
421 open models, relative to an input token. Only 96 models have a price for cached input. Source:
genai-prices 0.2.3."""


def fitted(
    hours: Iterable[Hour], requests: float, prompt: float, output: float
) -> TokenWeights | None:
    """Return the token weights of one replica in one hour, or None without a step model.

    Args:
        requests: number of requests received in that hour.
        prompt: number of input tokens without cached tokens.
    """
    prefill_s = decode_s = fixed_s = decodes = 0.0
    known = False
    for hour in hours:
        work, fit = hour.work, hour.coefficients
        if not (fit.keys() >= _REQUIRED and work.keys() >= _REQUIRED_WORK):
            continue
        known = True
        fixed_s += fit["step_model_base_s"] * work.get("steps_total", 0.0)
        prefill_s += (
            fit["step_model_per_prefill_token_s"] * work.get("scheduled_prefill_tokens_total", 0.0)
            + fit["step_model_per_prefill_attention_s"] * work["prefill_attention_total"]
            + fit.get("step_model_per_prefill_step_s", 0.0) * work.get("prefill_steps_total", 0.0)
        )
        decode_s += (
            fit["step_model_per_context_token_s"] * work.get("context_tokens_total", 0.0)
            + fit["step_model_per_decode_s"] * work["decodes_total"]
        )
        decodes += work["decodes_total"]
    if sequences := requests + decodes:
        # `requests` counts the whole replica, so divide after summing over its engines
        prefill_s += fixed_s * requests / sequences
        decode_s += fixed_s * decodes / sequences
    if not known or prefill_s + decode_s <= 0:
        return None
    in_share = prefill_s / (prefill_s + decode_s)
    fixed_in_share = requests / sequences if sequences else 0.0
    if prompt <= 0 or output <= 0:
        return replace(BY_PRICE, in_share=in_share, fixed_in_share=fixed_in_share)
    return TokenWeights(
        prefill_s / prompt,
        0.0,
        decode_s / output,
        fitted=True,
        in_share=in_share,
        fixed_in_share=fixed_in_share,
    )


def by_replica_hour(
    uptime: Uptime, cells: BillingCells, at: ReplicaHours
) -> dict[Key, TokenWeights]:
    """The weights of each replica for each hour in which the replica received requests."""
    hours: dict[Key, list[Hour]] = defaultdict(list)
    for ((replica, _), start), hour in uptime.hours.items():
        hours[replica, start].append(hour)
    prompt, cached, output = (
        at.sum(cells.sums[name]) for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    )
    columns = (at.sum(cells.requests), prompt - cached, output)
    return {
        key: fitted(hours[key], *sums) or BY_PRICE
        for key, *sums in zip(at.keys, *(each.tolist() for each in columns), strict=True)
        if key[0] is not None
    }
