"""Compute the cost of the same tokens at a managed API, and the break-even of self-hosting. Pure.

    break-even = fixed monthly cost / mean price of a request at the managed API

The fixed cost includes idle engines. The prices are part of the package genai-prices. Nothing is
downloaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cost.capacity import SustainableRate
from cost.prices import ManagedModel, PriceList
from telemetry.billing_data import BillingCells
from telemetry.requests import Outcome

MONTH_S: Final = 730 * 3_600


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts, summed over requests."""

    requests: int
    prompt: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True)
class ManagedCost:
    """The cost of a served model's traffic at a managed API."""

    model: str
    tokens: TokenCounts
    at: ManagedModel
    usd: float
    cached_discounted: bool

    @property
    def usd_per_request(self) -> float:
        """Mean cost per request."""
        return self.usd / self.tokens.requests


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The request rate above which self-hosting is cheaper."""

    rps: float
    requests_per_month: float
    tokens_per_month: float
    sustainable: SustainableRate

    @property
    def reachable(self) -> bool | None:
        """Whether the objectives are met at the break-even rate, or None if unknown."""
        if not self.sustainable.known:
            return None
        return self.sustainable.rps is not None and self.rps <= self.sustainable.rps


class NoManagedPrice(Exception):  # noqa: N818 -- a state, not a failure
    """A served model has no managed model, or genai-prices does not contain it."""


def tokens_by_model(cells: BillingCells) -> dict[str | None, TokenCounts]:
    """For each requested model, count the tokens of the requests that reached an engine."""
    model_at, outcome_at = (list(cells.by).index(name) for name in ("model", "outcome"))
    sums: dict[str | None, list[int]] = {}
    for place, group in enumerate(cells.group.tolist()):
        labels = cells.labels[group]
        if labels[outcome_at] == Outcome.REJECTED.value:
            continue
        mine = sums.setdefault(labels[model_at], [0] * 4)
        mine[0] += int(cells.requests[place])
        for kind, name in enumerate(("prompt_tokens", "cached_tokens", "output_tokens"), 1):
            mine[kind] += int(cells.sums[name][place])
    return {model: TokenCounts(*mine) for model, mine in sums.items() if mine[1] + mine[3]}


def compare(model: str | None, tokens: TokenCounts, prices: PriceList) -> ManagedCost:
    """The cost of a served model's traffic at the corresponding managed model.

    If a price depends on the request's length, every request is priced at the mean length.

    Raises:
        NoManagedPrice: there is no price.
    """
    at = prices.managed_model(model)
    if at is None or model is None:
        raise NoManagedPrice(
            f"no managed model is configured for {model!r}: add one to the price file, under"
            " managed: match, provider and model as genai-prices names them"
        )
    # imported here, because the import takes half a second
    from genai_prices import Usage, calc_price

    if tokens.requests <= 0 or tokens.prompt + tokens.output <= 0:
        raise NoManagedPrice(f"the requests of {model!r} report no tokens to compare")
    mean = Usage(
        input_tokens=tokens.prompt / tokens.requests,
        cache_read_tokens=min(tokens.cached, tokens.prompt) / tokens.requests,
        output_tokens=tokens.output / tokens.requests,
    )
    try:
        found = calc_price(mean, at.model, provider_id=at.provider)
    except LookupError as error:
        raise NoManagedPrice(
            f"genai-prices does not contain {at.provider} {at.model}, which is configured for"
            f" {model!r}: correct it in the price file, under managed:"
        ) from error
    return ManagedCost(
        model=model,
        tokens=tokens,
        at=at,
        usd=float(found.total_price) * tokens.requests,
        cached_discounted=getattr(found.model_price, "cache_read_mtok", None) is not None,
    )


def break_even(
    usd_per_hour: float, compared: Sequence[ManagedCost], sustainable: SustainableRate
) -> BreakEven | None:
    """Return the request rate at which the engines cost as much as the API, or None without
    comparable traffic.

    Args:
        usd_per_hour: cost of all engines, busy or idle.
        compared: all models that the engines serve.
    """
    requests = sum(each.tokens.requests for each in compared)
    usd = sum(each.usd for each in compared)
    if not requests or usd <= 0:
        return None
    tokens = sum(each.tokens.prompt + each.tokens.output for each in compared)
    rps = usd_per_hour / 3_600 / (usd / requests)
    return BreakEven(
        rps=rps,
        requests_per_month=rps * MONTH_S,
        tokens_per_month=rps * MONTH_S * tokens / requests,
        sustainable=sustainable,
    )
