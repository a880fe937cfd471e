"""What a token costs beside another: of the prompt computed, of the prompt cached, of the answer.

Pure. Where an engine's step model is known, seconds of its steps by what was computed in them:

    in  = α·P + κ·Q + γ·S·r/(r + N)        over the prompt tokens that were computed
    out = β·C + δ·N + γ·S·N/(r + N)        over the tokens that were made

with S steps, N sequences that decoded, and r requests, each taken for one sequence of prefill:
a step's fixed part is shared by those in it. What came from a cache was not computed.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cost.seen import Hour, Seen
from telemetry.accounts import Cells


@dataclass(frozen=True, slots=True)
class Weights:
    """What one token of each kind weighs; only their proportions matter."""

    uncached: float
    cached: float
    output: float
    fitted: bool

    def of(self, prompt: float, cached: float, output: float) -> tuple[float, float]:
        """What goes in weighs, and what comes out."""
        uncached = max(0.0, prompt - cached)
        return self.uncached * uncached + self.cached * cached, self.output * output


BY_PRICE = Weights(uncached=1.0, cached=0.125, output=1.75, fitted=False)
"""Where no step model is known: what managed APIs charge for open models, relative to an input
token, in the median of 421 models (96 with a price for cached input).
Source: genai-prices 0.2.3."""


def fitted(hours: Iterable[Hour], requests: float, prompt: float, output: float) -> Weights | None:
    """The weights of one replica's engines by their step models; None where they do not tell.

    Args:
        hours: of its engines.
        requests: that it served in them.
        prompt: tokens that went in, cached ones left out.
        output: tokens that came out.
    """
    went_in = came_out = 0.0
    known = False
    for hour in hours:
        work, fit = hour.work, hour.coefficients
        if len(fit) < 5 or "decodes_total" not in work or "prefill_attention_total" not in work:
            continue
        known = True
        steps, decodes = work.get("steps_total", 0.0), work["decodes_total"]
        sequences = requests + decodes
        fixed_s = fit["step_model_base_s"] * steps
        went_in += (
            fit["step_model_per_prefill_token_s"] * work.get("scheduled_prefill_tokens_total", 0.0)
            + fit["step_model_per_prefill_attention_s"] * work["prefill_attention_total"]
            + (fixed_s * requests / sequences if sequences else 0.0)
        )
        came_out += (
            fit["step_model_per_context_token_s"] * work.get("context_tokens_total", 0.0)
            + fit["step_model_per_decode_s"] * decodes
            + (fixed_s * decodes / sequences if sequences else 0.0)
        )
    if not known or prompt <= 0 or output <= 0 or went_in + came_out <= 0:
        return None
    return Weights(went_in / prompt, 0.0, came_out / output, fitted=True)


def by_replica(times: Seen, cells: Cells) -> dict[str, Weights]:
    """The weights of each replica that served requests, over the whole stretch."""
    place = list(cells.by).index("replica")
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for index, group in enumerate(cells.group.tolist()):
        replica = cells.labels[group][place]
        if replica is not None:
            amounts = (
                cells.requests[index],
                *(
                    cells.sums[n][index]
                    for n in ("prompt_tokens", "cached_tokens", "output_tokens")
                ),
            )
            for kind, amount in enumerate(amounts):
                sums[replica][kind] += float(amount)
    hours: dict[str, list[Hour]] = defaultdict(list)
    for ((replica, _), _), hour in times.hours.items():
        hours[replica].append(hour)
    found = {}
    for replica, (requests, prompt, cached, output) in sums.items():
        by_fit = fitted(hours[replica], requests, prompt - cached, output)
        found[replica] = by_fit or BY_PRICE
    return found
