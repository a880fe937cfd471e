"""Generate the clients' traffic: requests that arrive as a Poisson process, which a seed
determines.

The rig's tokeniser has one token per byte, so a prompt of n characters has n tokens.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rig.load import Call

_LETTERS = "abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraffic:
    """A stream of requests. Further streams may be added to it."""

    rate_per_s: float
    prefix_tokens: int = 640
    """Tokens in each prompt's prefix. If `shared` is set, all prompts of a tenant have the same
    prefix."""
    shared: bool = True
    prompt_tokens: tuple[int, int] = (32, 160)
    """Minimum and maximum number of prompt tokens after the prefix. All numbers between them are
    equally likely."""
    output_tokens: tuple[int, int] = (16, 40)
    tenants: tuple[str, ...] = ("ada", "bob", "cyd", "dan")
    stream: bool = True
    body: dict[str, Any] = field(default_factory=dict)
    read_bytes_per_s: float | None = None
    extra: tuple["PlannedTraffic", ...] = ()

    def arrivals(self, seed: str, duration_s: float) -> list[tuple[float, Call]]:
        """The calls in order of time. Each call has its time in seconds from the start."""
        found = list(self._own(seed, duration_s))
        for number, other in enumerate(self.extra):
            found += other.arrivals(f"{seed}/{number}", duration_s)
        return sorted(found, key=lambda arrival: arrival[0])

    def _own(self, seed: str, duration_s: float) -> Iterator[tuple[float, Call]]:
        draw = random.Random(seed)
        at_s = 0.0
        while (at_s := at_s + draw.expovariate(self.rate_per_s)) < duration_s:
            tenant = draw.choice(self.tenants)
            # A tenant has the same prefix in all periods, independent of the period's seed.
            prefix = text(random.Random(tenant) if self.shared else draw, self.prefix_tokens)
            yield (
                at_s,
                Call(
                    chat=False,
                    stream=self.stream,
                    prompt=prefix + text(draw, draw.randint(*self.prompt_tokens)),
                    max_tokens=draw.randint(*self.output_tokens),
                    headers={"x-tenant-id": tenant},
                    body=self.body,
                    read_bytes_per_s=self.read_bytes_per_s,
                ),
            )


def text(draw: random.Random, tokens: int) -> str:
    """A prompt of `tokens` tokens."""
    return "".join(draw.choices(_LETTERS, k=tokens))
