"""The configuration of a simulation."""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from replay.engine_config import EngineConfig, KvRole
from simulator.fault import SimulatedFault
from simulator.foreign_world import ForeignWorld
from simulator.workload import Workload

Router = Literal["least_outstanding", "round_robin", "cache_aware"]
ROUTERS: tuple[Router, ...] = get_args(Router)

DISAGGREGATED_FAULTS = ("kv_transfer", "load_exceeds_capacity", "gpu_throttling")

REGIONS = ("eu-west-1", "us-east-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """The configuration of a simulation."""

    replicas: int = 2
    prefill_replicas: int = 0
    """The number of the first replicas, which only prefill. All other replicas then only decode. If
    0, each replica prefills and decodes."""
    workload: Workload = field(default_factory=lambda: Workload(rate_per_s=10.0))
    faults: tuple[SimulatedFault, ...] = ()
    engine: EngineConfig = field(default_factory=EngineConfig)
    router: Router = "least_outstanding"
    regions: tuple[str, ...] = REGIONS
    """The regions, which are assigned to the replicas in turn."""
    model: str = "llama-3-8b-sim"
    foreign: ForeignWorld | None = None
    """Properties that the replay's model of a server does not have."""
    seed: int = 1
    duration_s: float | None = None
    """Seconds during which requests arrive. If None, requests arrive until the trace ends, or
    without end if there is no trace."""
    started_unix_ns: int = 0
    """The wall-clock time at virtual time 0."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas: {self.replicas}; allowed: 1 or more")
        if not 0 <= self.prefill_replicas < self.replicas:
            raise ValueError(
                f"prefill_replicas: {self.prefill_replicas}; allowed: 0 to {self.replicas - 1},"
                " fewer than all replicas"
            )
        for fault in self.faults if self.prefill_replicas else ():
            if fault.cause not in DISAGGREGATED_FAULTS:
                raise ValueError(
                    f"fault {fault.cause} with {self.prefill_replicas} prefill replicas; allowed:"
                    f" {', '.join(DISAGGREGATED_FAULTS)}"
                )
        if self.router not in ROUTERS:
            raise ValueError(f"router: {self.router!r}; allowed: {', '.join(ROUTERS)}")
        if not self.regions:
            raise ValueError("regions: none; allowed: one or more")
        if self.duration_s is not None and not self.duration_s > 0:
            raise ValueError(f"duration_s: {self.duration_s}; allowed: more than 0, or None")

    @property
    def rate_per_s(self) -> float:
        """The ordinary rate of requests of each replica."""
        return self.workload.rate_per_s / self.replicas

    def name_of(self, replica: int) -> str:
        """A replica's `service.instance.id`."""
        if not self.prefill_replicas:
            return f"sim-{replica}"
        if replica < self.prefill_replicas:
            return f"sim-prefill-{replica}"
        return f"sim-decode-{replica - self.prefill_replicas}"

    def engine_of(self, replica: int) -> EngineConfig:
        """The configuration of a replica's engine."""
        if not self.prefill_replicas:
            return self.engine
        role: KvRole = "kv_producer" if replica < self.prefill_replicas else "kv_consumer"
        return replace(self.engine, kv_connector=True, kv_role=role)
