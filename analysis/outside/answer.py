"""Data types for the results of probes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.window import Window

PHASES: Final = (
    *("late", "dns", "connect", "tls", "server", "network", "not_split", "content", "transfer"),
)
"""The phases of a probe in the order of time. They sum to the wait: the time from the start of the
probe to the end of its answer. If the store has the server's row of the probe, the time to the
first event is divided into `server` and `network`. If the store has no such row, this time is
`not_split`. `content` is the time from the first event to the first content."""

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
    """The effect of the prefix cache on the time to the first event: a repeated prompt, compared
    with a new prompt."""

    pairs: int
    """Number of pairs. A pair is a new prompt and its repetition, if the model answered both
    prompts."""
    new_s: float
    """Median time to the first event of the new prompts."""
    repeated_s: float
    """Median time to the first event of the repetitions."""
    difference_s: float
    """Median over the pairs of the difference: time of the repetition − time of the new prompt."""
    difference_low_s: float | None
    difference_high_s: float | None
    """The 95 % interval of the median difference, or None if there are fewer than 8 pairs."""
    cached_ratio: float | None
    """The cached share of the prompt tokens of the repetitions, as reported by the server."""

    @property
    def effect(self) -> Literal["faster", "slower", "none found"] | None:
        """Whether a repeated prompt is answered faster or slower, or None if there are too few
        pairs."""
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
    """The results of the probes from one region to one endpoint. Latencies are computed from the
    complete answers of the model."""

    region: str | None
    endpoint: str
    model: str | None
    kind: str
    hosting: Hosting
    """`self-hosted` if the store has the server's row of a probe. `managed` if it has no such row,
    and the probes have a list price."""
    sent: int
    """Probes that were sent and not stopped by the prober."""
    answered: int
    """Probes with a complete answer."""
    cached: int
    """Number of probes that a gateway's cache answered. Latencies do not include these probes."""
    not_sent: Mapping[str, int]
    """For each outcome, the number of probes that were not sent (`over_budget`, `missed`) or that
    the prober stopped (`abort`). These probes count neither as successes nor as failures."""
    failures: Sequence[FailedProbes]
    """The reasons for failures, most frequent first."""
    phases_s: Mapping[str, float] | None
    """Mean seconds of each of `PHASES`; they sum to `wait_mean_s`."""
    wait_mean_s: float | None
    wait: Latency | None
    first_content: Latency | None
    network: Latency | None
    """Time outside the server until the first event. Only probes with a row from the server are
    included."""
    cache: CacheEffect | None
    prompt_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Cost of the probes at the list price, or None without a price."""
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
    """Labels that select the probes, from `telemetry.probes.LABELS`."""


@dataclass(frozen=True, slots=True)
class OutsideAnswer:
    """The probes of a window, grouped by place. A place is an endpoint, a model and a region."""

    window: Window
    endpoints: Sequence[EndpointResults]
    """The results for each place, sorted by endpoint, model and region."""
    left_out: int
    """Number of places that are left out. These places have the fewest failures. Among places with
    equally many failures, they have the fewest probes."""
    read: int
    """Number of probes that were read. It includes the probes of places that are left out."""
    scale: float
    """1 if all probes were read. In a long window, only a sample of the answered probes is read.
    Each answered probe of the sample then represents this many probes, so counts of answered probes
    are estimates."""
    unanswered_scale: float
    """1 if all probes without an answer were read. If there are too many, only a sample of them is
    read. Each of them then represents this many probes, so counts of failures are estimates."""
    step_s: int
