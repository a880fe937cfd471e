"""The question that a diagnosis answers: a latency, requests, a window and a baseline. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Metric(StrEnum):
    """The latencies that can be explained."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL_MAX = "itl_max"
    E2E = "e2e"
    QUEUE = "queue"
    FIRST_CONTENT = "first_content"


CONTAIN_TOKENS: Final = (Metric.E2E, Metric.FIRST_CONTENT)
"""The latencies that grow with the number of generated tokens. For E2E, these are all generated
tokens. For the time to the first content, they are only the tokens before the content."""

FROM_RECEIPT: Final = (Metric.TTFT, *CONTAIN_TOKENS)
"""The latencies that begin when the request is received."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time range: the instants from `from_unix_ns` (included) to `to_unix_ns` (excluded).

    Raises:
        ValueError: the end is not after the start.
    """

    from_unix_ns: int
    to_unix_ns: int

    def __post_init__(self) -> None:
        if not self.from_unix_ns < self.to_unix_ns:
            raise ValueError(
                f"the end of a time range must be after its start: {self.from_unix_ns} to"
                f" {self.to_unix_ns}"
            )

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.to_unix_ns - self.from_unix_ns) / 1e9

    @property
    def before(self) -> "Span":
        """The range of the same length that ends at the start of this range."""
        return Span(2 * self.from_unix_ns - self.to_unix_ns, self.from_unix_ns)


@dataclass(frozen=True, slots=True)
class Question:
    """The question why `metric` is slower in `window` than in `baseline`.

    `where` maps labels to values and selects the requests whose latency is explained. The value
    None selects requests whose label is unknown. Other requests are still used as evidence, because
    one tenant's requests may wait for the requests of other tenants.
    """

    metric: Metric
    window: Span
    baseline: Span
    where: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def whole(self) -> Span:
        """The shortest range that contains window and baseline."""
        return Span(
            min(self.window.from_unix_ns, self.baseline.from_unix_ns),
            max(self.window.to_unix_ns, self.baseline.to_unix_ns),
        )
