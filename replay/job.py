"""A request inside the modelled engine."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from replay.kv_cache import Lease


class Billed(NamedTuple):
    """Running sums over an engine's steps. The step time that is billed to a request, including
    stalls, is computed from these sums."""

    each: float = 0.0
    """Sum over all steps of (noise factor / number of sequences)."""
    scale: float = 0.0
    scale_steps: float = 0.0


class StepSums(NamedTuple):
    """Running sums over an engine's steps. A request's share of a sum is the difference between its
    value at the request's end and its value at the request's start."""

    prefill_s: float
    """Seconds of prefill work."""
    stall_s: float
    scale: float
    """Sum of the noise factors of all steps."""
    scale_steps: float
    """Sum over all steps of (noise factor · index of the step). The time to read a decode's context
    is computed from this sum, because the context grows by one token per step."""
    billed: "Billed"


class Blocked(NamedTuple):
    """For each limit, a running sum of the seconds during which it blocked the queue."""

    seats_s: float = 0.0
    kv_s: float = 0.0
    budget_s: float = 0.0


class PhaseParts(NamedTuple):
    """The seconds of a prefill or decode phase that each cause takes."""

    own: float
    others_prefill: float
    others_decode: float
    preempted: float
    stall: float


class ReplayQueueParts(NamedTuple):
    """The seconds in the queue for each reason."""

    seats: float
    kv: float
    budget: float
    held: float
    step: float


@dataclass(slots=True)
class Shares:
    """The seconds of a phase that each cause takes. The rest of the phase is the time of other
    requests' decodes."""

    own_s: float = 0.0
    others_prefill_s: float = 0.0
    preempted_s: float = 0.0
    stall_s: float = 0.0

    def of(self, phase_s: float) -> PhaseParts:
        """Return the parts of a phase that lasts `phase_s` seconds. The parts sum to `phase_s`."""
        others_decode_s = (
            phase_s - self.own_s - self.others_prefill_s - self.preempted_s - self.stall_s
        )
        return PhaseParts(
            own=self.own_s,
            others_prefill=self.others_prefill_s,
            others_decode=max(0.0, others_decode_s),
            preempted=self.preempted_s,
            stall=self.stall_s,
        )


@dataclass(slots=True, eq=False)
class Job:
    """A request in an engine. Times are in virtual seconds. A time that is not reached yet is None.

    Args:
        prompt_tokens: at least 1.
        output_tokens: at least 1.
        queued: time at which the request reaches the engine.
        prefixes: key and end (in tokens) of each segment of the shared prefix, in order.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    queued: float
    prefixes: tuple[tuple[Hashable, int], ...] = ()
    lora: str | None = None
    acceptance: float = 0.0
    fetch_s: float = 0.0
    fetched_tokens: int = 0
    grammar_s: float = 0.0
    encoder_s: float = 0.0
    """Seconds that the encoder takes for the request's images, in the step of the first prefill
    chunk."""
    encoded: bool = False
    priority: int = 0
    """Priority for the policy `priority`; the lowest value is served first."""

    handed: float | None = None
    """Time of arrival, or None until the engine accepts the request. The engine then sets `queued`
    to the time of acceptance."""
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    preempted_at: list[float] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    cached_tokens: int | None = None
    external_cached_tokens: int = 0
    held_s: float = 0.0
    """Seconds in the queue during which the request could not be scheduled: it waited for a
    grammar, a KV transfer or an adapter slot ("not eligible")."""
    held_since: float = 0.0
    """Start of the latest wait that is part of `held_s`. `blocked_then` contains the engine's
    running sums at this time."""
    blocked_then: Blocked = field(default_factory=Blocked)
    first_sequences: int = 0
    """Number of sequences in the step that produced the first token."""
    last_sequences: int = 0
    itl_max_s: float | None = None
    others_prefill_tokens_max: int = 0
    blocked: Blocked = field(default_factory=Blocked)
    """Before the request is scheduled: the engine's running sums (`ReplayEngine.blocked`) at the
    first step that could have admitted it. Once the request is scheduled: the increase of these
    sums during its wait."""
    billed_s: float = 0.0
    """Seconds of steps that are billed to the request."""
    wasted_s: float = 0.0
    """Billed seconds of work that was computed again after a preemption."""
    prefill: Shares = field(default_factory=Shares)
    decode: Shares = field(default_factory=Shares)

    made_tokens: int = 0
    """Number of output tokens when the request last joined or left the decoding requests."""
    target_tokens: int = 0
    """Number of tokens to compute before the next token can be produced."""
    computed_tokens: int = 0
    joined: int = -1
    """Step count at which the request joined the decoding requests; −1 if it is not decoding."""
    evicted: float | None = None
    """Time of the preemption whose lost tokens are not recomputed yet, or None. If the request is
    preempted again before the recomputation, the time of the first preemption is kept."""
    aborted: float | None = None
    """End of the step after which the request was aborted, or None if it was not aborted."""
    lost_tokens: int = 0
    """Number of tokens that were computed at the time `evicted`."""
    before: "StepSums | None" = None
    """The engine's running sums when the request joined the decoding requests."""
    admitted: int = -1
    """The engine's number of admissions when the request last joined the batch. This number orders
    the requests by their admission."""
    lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        self.target_tokens = self.prompt_tokens
        self.lease = Lease(self.number)

    def lease_blocks(self, block_tokens: int) -> None:
        """Create the request's lease, with the number of KV-cache blocks of each shared segment.

        Args:
            block_tokens: the number of tokens in a block.
        """
        segments, before = [], 0
        # The last output token is not an input of any step, so its keys and values are never
        # computed.
        computed_tokens = self.prompt_tokens + self.output_tokens - 1
        for key, end_tokens in self.prefixes:
            end = min(end_tokens, computed_tokens) // block_tokens
            if end > before:
                segments.append((key, end - before))
                before = end
        self.lease = Lease(self.number, tuple(segments))

    @property
    def order(self) -> tuple[int, float, int]:
        """Sort key of the policy `priority`. The request with the lowest key is served first, and
        the request with the highest key is preempted first."""
        return self.priority, self.queued if self.handed is None else self.handed, self.number

    @property
    def phase(self) -> Shares:
        """The seconds of the request's current phase (prefill or decode) that each cause takes."""
        return self.prefill if self.first_token is None else self.decode

    @property
    def queue(self) -> ReplayQueueParts:
        """For each reason, the seconds that the request waited until it was first scheduled."""
        waited_s = 0.0 if self.scheduled is None else self.scheduled - self.queued
        # Rounding can make differences of running sums slightly negative.
        seats_s, kv_s, budget_s = (max(0.0, spent_s) for spent_s in self.blocked)
        step_s = max(0.0, waited_s - seats_s - kv_s - budget_s - self.held_s)
        return ReplayQueueParts(seats_s, kv_s, budget_s, self.held_s, step_s)

    @property
    def preparing_s(self) -> float:
        """Seconds during which no step may schedule the request: it waits for its grammar, then
        for its KV transfer."""
        return self.grammar_s + self.fetch_s

    def hold(self, at: float, blocked: Blocked) -> None:
        """Mark the request as not eligible: no step may schedule it."""
        self.held_since, self.blocked_then = at, blocked

    def let_go(self, at: float, blocked: Blocked) -> None:
        """Let steps schedule the request again. The time since the call of `hold` is counted only
        in `held_s`, not in `blocked`."""
        self.held_s += at - self.held_since
        gone = zip(self.blocked, blocked, self.blocked_then, strict=True)
        self.blocked = Blocked(*(mine + now - then for mine, now, then in gone))

    def saw_prefill(self, others_tokens: int) -> None:
        """Record how many prompt tokens of other requests were in a step of this request."""
        if others_tokens > self.others_prefill_tokens_max:
            self.others_prefill_tokens_max = others_tokens

    def saw_gap(self, gap_s: float) -> None:
        """Record the time between two tokens of the request."""
        if self.itl_max_s is None or gap_s > self.itl_max_s:
            self.itl_max_s = gap_s
