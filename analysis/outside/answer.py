"""Data types for the results of probes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from store.queries import Window

PHASES: Final = (
    *("late", "dns", "connect", "tls", "server", "network", "not_split", "content", "transfer"),
)
"""The phases of a probe in order of time, which sum to the wait: from its start to the end of its
answer. The time to the first event is `server` and `network` if the store has the server's row, and
else `not_split`. `content` is the time from the first event to the first content, in which the
model may send reasoning."""

NEVER_MATCHED: Final = "No probe has ever matched these filters."

Hosting = Literal["self-hosted", "managed", "unknown"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a latency. P95 and P99 are None if there are too few probes."""

    probes: int
    p50_s: float
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class FailedProbes:
    """One reason why probes failed."""

    error_type: str
    sentence: str
    probes: int
    newest_unix_ns: int


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """The effect of the prefix cache on the time to the first event: a repeated prompt compared
    with a new one."""

    pairs: int
    """A pair is a new prompt and its repetition, if the model answered both."""
    new_s: float
    """Median time of the new prompts."""
    repeated_s: float
    """Median of the repetitions."""
    difference_s: float
    """Median over the pairs of repetition − new prompt."""
    difference_low_s: float | None
    difference_high_s: float | None
    """The 95 % interval of the difference; None below 8 pairs."""
    cached_ratio: float | None
    """The cached share of the prompt tokens of the repetitions, as reported by the server."""

    @property
    def effect(self) -> Literal["faster", "slower", "none found"] | None:
        """Whether a repeated prompt is answered faster or slower; None with too few pairs."""
        if self.difference_low_s is None or self.difference_high_s is None:
            return None
        if self.difference_high_s < 0:
            return "faster"
        return "slower" if self.difference_low_s > 0 else "none found"


@dataclass(frozen=True, slots=True)
class EndpointStep:
    """The probes of one endpoint in one time step, for a chart."""

    from_unix_ns: int
    sent: int
    answered: int
    wait_p50_s: float | None
    """Median wait of the probes that the model answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointResults:
    """The results of the probes from one region to one endpoint. Latencies are of the model's
    complete answers."""

    region: str | None
    endpoint: str
    model: str | None
    kind: str
    hosting: Hosting
    """`self-hosted` if the store has the server's row of one of the probes, else `managed` if they
    have a list price."""
    sent: int
    """Probes that were sent and not stopped by the prober."""
    answered: int
    """Probes with a complete answer."""
    cached: int
    """Probes that a gateway's cache answered, which latencies exclude."""
    not_sent: Mapping[str, int]
    """Probes that were not sent (`over_budget`, `missed`) or that the prober stopped (`abort`), by
    outcome. They are neither successes nor failures."""
    failures: Sequence[FailedProbes]
    """The most frequent first."""
    phases_s: Mapping[str, float] | None
    """Mean seconds of each of `PHASES`; they sum to `wait_mean_s`."""
    wait_mean_s: float | None
    wait: Latency | None
    first_content: Latency | None
    network: Latency | None
    """Time outside the server until the first event, of probes with the server's row."""
    cache: CacheEffect | None
    prompt_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Cost of the probes at the list price; None without a price."""
    certificate_ends_unix_s: float | None
    newest_unix_ns: int
    steps: Sequence[EndpointStep]

    @property
    def success_ratio(self) -> float | None:
        """Share of the sent probes with a complete answer."""
        return self.answered / self.sent if self.sent else None


@dataclass(frozen=True, slots=True)
class OutsideQuestion:
    """The probes to show."""

    window: Window
    equals: Mapping[str, str | None]
    """From `store.probes.LABELS`."""


@dataclass(frozen=True, slots=True)
class OutsideAnswer:
    """The probes of a window by place: endpoint, model and region."""

    window: Window
    endpoints: Sequence[EndpointResults]
    """In order of endpoint, model and region."""
    left_out: int
    """Number of places beyond the limit: those with the fewest failures, then the fewest probes."""
    read: int
    """Probes that were read, including those of omitted places."""
    scale: float
    """1 if all probes were read. In a long window, only a sample of the answered probes is read;
    each stands for this many, and counts of answered probes are estimates."""
    step_s: int
