"""What is asked: which latency, of whose requests, of which stretch of time, against which other.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Metric(StrEnum):
    """The latencies that can be explained."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL_MAX = "itl_max"
    E2E = "e2e"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Span:
    """The instants t with from ≤ t < to, in unix nanoseconds.

    Raises:
        ValueError: it ends before it begins, or at once.
    """

    from_unix_ns: int
    to_unix_ns: int

    def __post_init__(self) -> None:
        if not self.from_unix_ns < self.to_unix_ns:
            raise ValueError(
                f"a stretch of time must end after it begins: {self.from_unix_ns} to "
                f"{self.to_unix_ns}"
            )

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.to_unix_ns - self.from_unix_ns) / 1e9

    @property
    def before(self) -> "Span":
        """The stretch of the same length just before."""
        return Span(2 * self.from_unix_ns - self.to_unix_ns, self.from_unix_ns)


@dataclass(frozen=True, slots=True)
class Question:
    """Why is `metric` slower in `window` than in `baseline`?

    `where` (label → value, None for unknown) chooses whose latency is asked about. It chooses no
    evidence: what one tenant waits for is decided by everybody's requests.
    """

    metric: Metric
    window: Span
    baseline: Span
    where: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def whole(self) -> Span:
        """The shortest span that holds both."""
        return Span(
            min(self.window.from_unix_ns, self.baseline.from_unix_ns),
            max(self.window.to_unix_ns, self.baseline.to_unix_ns),
        )
