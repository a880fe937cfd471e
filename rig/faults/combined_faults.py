"""Two faults at the same time on a real server."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rig.faults.fault import Disturb, DisturbedServer, ServerFault

AND: Final = "+"
"""Separates the two causes in the name of a pair of faults."""

PAIRS: Final = {
    "longer_outputs+engine_stall": "e2e",
    "longer_prompts+engine_stall": "ttft",
    "longer_prompts+longer_outputs": "e2e",
    "prefix_cache_miss+engine_stall": "ttft",
    "longer_outputs+long_prompt_blocking": "e2e",
}
"""For each pair of faults, the latency to explain."""


@dataclass(frozen=True, slots=True)
class _Both:
    disturbances: tuple[Disturb, ...]

    def __call__(
        self, server: DisturbedServer, draw: random.Random
    ) -> AbstractContextManager[None]:
        return self._open(server, draw)

    @contextmanager
    def _open(self, server: DisturbedServer, draw: random.Random) -> Iterator[None]:
        with ExitStack() as stack:
            for disturb in self.disturbances:
                stack.enter_context(disturb(server, draw))
            yield


def together(first: ServerFault, second: ServerFault) -> ServerFault:
    """Combine two faults into one. The second fault must be based on the traffic of the first
    fault."""
    name = f"{first.cause}{AND}{second.cause}"
    return replace(
        second,
        cause=name,
        metric=PAIRS[name],
        usual=first.usual,
        disturb=_Both((first.disturb, second.disturb)),
        notes={**first.notes, **second.notes},
    )
