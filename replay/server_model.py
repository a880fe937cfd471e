"""Model a vLLM deployment. `replay` simulates the model, and a what-if question changes it.

Pure.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

from replay.engine_config import EngineConfig
from replay.front_end import FrontEndModel

Router = Literal["round_robin", "least_outstanding", "prefix_aware"]
ROUTERS: tuple[Router, ...] = get_args(Router)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerModel:
    """Identical replicas of one vLLM server behind a router.

    The engines of a data-parallel server are replicas too, with the router `least_outstanding`.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    front_end: FrontEndModel = field(default_factory=FrontEndModel)
    replicas: int = 1
    router: Router = "round_robin"
    affinity_slack: int = 12
    """The argument `slack` of `replay.routing.prefix_aware`, for the router `prefix_aware`."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas: {self.replicas}; allowed: 1 or more")
        if self.router not in ROUTERS:
            raise ValueError(f"router: {self.router!r}; allowed: {', '.join(ROUTERS)}")
        if self.affinity_slack < 0:
            raise ValueError(f"affinity_slack: {self.affinity_slack}; allowed: 0 or more")


def engine_seed(seed: str, replica: int) -> str:
    """Return the seed of a replica's step noise."""
    return f"{seed}:{replica}"
