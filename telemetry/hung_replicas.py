"""The replicas that report, and those that hang."""

from typing import Final, NamedTuple

_ITS_ENGINE: Final = "its engine has taken no step"


class HungReplica(NamedTuple):
    """A replica that has requests in flight and completes no steps."""

    replica: str
    in_flight: int
    oldest_request_age_s: float
    last_step_age_s: float
    model: str | None = None
    simulated: bool = False
    engines: tuple[int, ...] = ()
    """Numbers of the hung engines. Empty if there is only one engine."""

    @property
    def no_step_text(self) -> str:
        """A text such as `its engine 1 has taken no step`."""
        numbers = ", ".join(map(str, self.engines))
        if len(self.engines) > 1:
            return f"its engines {numbers} have taken no step"
        return f"its engine {numbers} has taken no step" if numbers else _ITS_ENGINE


class ReplicaProgress(NamedTuple):
    """The replicas that sent a sample in the last 30 s, and the hung replicas."""

    reporting: frozenset[str]
    hung: tuple[HungReplica, ...]

    @property
    def replicas(self) -> int:
        """Number of replicas that sent a sample."""
        return len(self.reporting)
