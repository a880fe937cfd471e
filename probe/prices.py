"""Prices of managed endpoints. The package genai-prices contains the prices and fetches nothing.

An endpoint has a price if genai-prices contains the provider of its address and the model. A
self-hosted endpoint has none: its price is unknown, not zero.
"""

from collections.abc import Callable
from typing import NamedTuple

from probe.plan import Endpoint


class Tokens(NamedTuple):
    """Numbers of tokens. Cached tokens are part of the prompt."""

    prompt: int
    output: int
    cached: int = 0


PriceOf = Callable[[Endpoint, Tokens], float | None]
"""Returns the price of a call in dollars, or None if it is unknown."""


def list_price(endpoint: Endpoint, tokens: Tokens) -> float | None:
    """Return the price of a call in dollars, or None if it is unknown."""
    # Imported here because the import takes half a second.
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.prompt,
        cache_read_tokens=min(tokens.cached, tokens.prompt),
        output_tokens=tokens.output,
    )
    try:
        found = calc_price(usage, endpoint.model, provider_api_url=endpoint.url)
    except LookupError:
        return None
    return float(found.total_price)
