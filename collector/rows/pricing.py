"""Requests get their cost on the way in, by the engines that the same messages tell of."""

from dataclasses import dataclass

from collector.normalise.batch import Batch
from cost.pricing import Pricing


@dataclass(frozen=True, slots=True)
class Priced:
    """Enriches a message's rows. What was heard first counts for what comes with it."""

    pricing: Pricing

    def __call__(self, batch: Batch, _arrived_unix_ns: int) -> None:
        """Price its requests, which nobody else has seen yet."""
        self.pricing.update(batch.starts, batch.samples, batch.gpus)
        self.pricing.price(batch.requests)
