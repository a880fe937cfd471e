"""What the same tokens would have cost at a managed API, and from which volume on one's own pays.

    break-even = fixed cost of a month / price of a request at this traffic's mix

The fixed cost is that of the engines, whether they work or not: an idle GPU costs the same. It
only counts up to the rate at which the objective is still kept (`capacity`): beyond it more
engines are needed.

Pure: prices come with the package genai-prices, and nothing is fetched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cost.capacity import SustainableRate
from cost.prices import ManagedModel, PriceList
from telemetry.accounts import Cells
from telemetry.requests import Outcome

MONTH_S: Final = 730 * 3_600
"""A twelfth of a year."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of some requests."""

    requests: int
    prompt: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One served model's traffic at a managed API."""

    model: str
    """As it is served."""
    tokens: Tokens
    at: ManagedModel
    usd: float
    cached_discounted: bool
    """Whether cached tokens cost less there."""

    @property
    def usd_per_request(self) -> float:
        """At this mix of tokens."""
        return self.usd / self.tokens.requests


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From how many requests a second on one's own engines cost less."""

    rps: float
    requests_per_month: float
    tokens_per_month: float
    sustainable: SustainableRate
    """The highest rate at which the objectives were kept."""

    @property
    def reachable(self) -> bool | None:
        """Whether the objectives have been kept at such a rate; None where too few requests were
        counted to know."""
        if not self.sustainable.known:
            return None
        return self.sustainable.rps is not None and self.rps <= self.sustainable.rps


class NoManagedPrice(Exception):  # noqa: N818 -- it says what is the case
    """No managed model stands for this one, or genai-prices does not know the one named."""


def tokens_by_model(cells: Cells) -> dict[str | None, Tokens]:
    """What reached an engine, by the model that it asked for; one without tokens is left out."""
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
    return {model: Tokens(*mine) for model, mine in sums.items() if mine[1] + mine[3]}


def compare(model: str | None, tokens: Tokens, prices: PriceList) -> Comparison:
    """The price of some traffic at the managed model that stands for the served one.

    Requests are priced as the mean one of them: tiers go by a request's length.

    Raises:
        NoManagedPrice: with what to configure.
    """
    at = prices.managed_model(model)
    if at is None or model is None:
        raise NoManagedPrice(
            f"no managed model stands for {model!r}: name one in the price file, under managed:"
            " match, provider and model as genai-prices has them"
        )
    # Half a second of its own to import.
    from genai_prices import Usage, calc_price

    if tokens.requests <= 0 or tokens.prompt + tokens.output <= 0:
        raise NoManagedPrice(f"the requests of {model!r} tell no tokens to compare by")
    mean = Usage(
        input_tokens=tokens.prompt / tokens.requests,
        cache_read_tokens=min(tokens.cached, tokens.prompt) / tokens.requests,
        output_tokens=tokens.output / tokens.requests,
    )
    try:
        found = calc_price(mean, at.model, provider_id=at.provider)
    except LookupError as error:
        raise NoManagedPrice(
            f"genai-prices knows no {at.provider} {at.model}, which stands for {model!r}:"
            " correct it in the price file, under managed:"
        ) from error
    return Comparison(
        model=model,
        tokens=tokens,
        at=at,
        usd=float(found.total_price) * tokens.requests,
        cached_discounted=getattr(found.model_price, "cache_read_mtok", None) is not None,
    )


def break_even(
    usd_per_hour: float, compared: Sequence[Comparison], sustainable: SustainableRate
) -> BreakEven | None:
    """The volume at which the engines cost what the API would; None where nothing compares.

    Args:
        usd_per_hour: of all engines, busy or not.
        compared: of all the traffic that they serve.
        sustainable: at which rate the objectives were kept.
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
