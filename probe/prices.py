"""List prices of managed endpoints, from the package genai-prices.

The package finds the provider by the endpoint's address. The price of a self-hosted endpoint is
unknown.
"""

from collections.abc import Callable
from typing import NamedTuple

from probe.plan import Endpoint


class ProbeTokens(NamedTuple):
    """The tokens of a call. Cached tokens are part of the prompt."""

    prompt: int
    output: int
    cached: int = 0


PriceOf = Callable[[Endpoint, ProbeTokens], float | None]


def list_price(endpoint: Endpoint, tokens: ProbeTokens) -> float | None:
    """The price of a call in US dollars, or None if it is unknown."""
    # The import takes half a second.
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
