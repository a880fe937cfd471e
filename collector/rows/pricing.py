"""Compute the cost of requests before they are stored, from samples of their engines."""

from dataclasses import dataclass

from collector.normalise.batch import NormalisedBatch
from cost.pricing import Pricing


@dataclass(frozen=True, slots=True)
class MessagePricing:
    """Computes the costs of the requests in a message."""

    pricing: Pricing

    def __call__(self, batch: NormalisedBatch, _arrived_unix_ns: int) -> None:
        """Update the engines' prices from the samples, then set the cost of the requests."""
        self.pricing.update(batch.starts, batch.samples, batch.gpus)
        self.pricing.price(batch.requests)
