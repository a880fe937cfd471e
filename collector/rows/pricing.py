"""Computes the cost of requests before they are stored, from the data of their engines."""

from dataclasses import dataclass

from collector.normalise.batch import Batch
from cost.pricing import Pricing


@dataclass(frozen=True, slots=True)
class RequestPricing:
    """Prices a message's requests. Engine data of the same message is applied first."""

    pricing: Pricing

    def __call__(self, batch: Batch, _arrived_unix_ns: int) -> None:
        """Update the engines' prices, then price the requests."""
        self.pricing.update(batch.starts, batch.samples, batch.gpus)
        self.pricing.price(batch.requests)
