"""A request inside the engine: lengths and a prefix in, instants and shares out."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from replay.kv_cache import Lease


class Billed(NamedTuple):
    """Running sums of what steps cost, including stalls."""

    each: float = 0.0
    """The scale divided by the number of sequences in the step."""
    scale: float = 0.0
    scale_steps: float = 0.0


class Sums(NamedTuple):
    """Running sums over an engine's steps: a request's share is a difference of two."""

    prefill_s: float
    """Time of prefill work."""
    stall_s: float
    scale: float
    """The noise factor of each step's work."""
    scale_steps: float
    """The noise factor times the step's number: a decode's context grows by one per step."""
    billed: "Billed"


class Blocked(NamedTuple):
    """Running sums of seconds in which the queue was blocked, by reason."""

    seats_s: float = 0.0
    kv_s: float = 0.0
    budget_s: float = 0.0


class PhaseParts(NamedTuple):
    """Seconds of a prefill or decode phase, by what they were spent on."""

    own: float
    others_prefill: float
    others_decode: float
    preempted: float
    stall: float


class QueueParts(NamedTuple):
    """Seconds in the queue, by the reason."""

    seats: float
    kv: float
    budget: float
    held: float
    step: float


@dataclass(slots=True)
class Shares:
    """Seconds of a phase by what they were spent on; others' decodes are the remainder."""

    own_s: float = 0.0
    others_prefill_s: float = 0.0
    preempted_s: float = 0.0
    stall_s: float = 0.0

    def of(self, phase_s: float) -> PhaseParts:
        """Return parts that sum to the phase."""
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
    """One request in an engine. Instants are virtual seconds; None means not reached.

    Args:
        number: its number in the engine.
        prompt_tokens: at least 1.
        output_tokens: tokens to produce, at least 1.
        queued: when it reaches the engine.
        prefixes: what prompt and answer share with other prompts, from the start: keys, each with
            the token at which its segment ends. Whole blocks of it are shared.
        lora: the adapter that it needs.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    queued: float
    prefixes: tuple[tuple[Hashable, int], ...] = ()
    lora: str | None = None
    acceptance: float = 0.0
    """Probability that a drafted token is accepted."""
    fetch_s: float = 0.0
    """How long the transfer of its KV cache takes."""
    fetched_tokens: int = 0
    """Prompt tokens that this saves."""
    priority: int = 0
    """With the policy `priority`, the lowest is first."""

    handed: float | None = None
    """When it arrived; `queued` is then when the engine accepted it, between two steps."""
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    preempted_at: list[float] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    cached_tokens: int | None = None
    external_cached_tokens: int = 0
    held_s: float = 0.0
    """How long it was skipped in the queue."""
    held_since: float = 0.0
    """Start of the present hold; `blocked_then` has the engine's sums at that time."""
    blocked_then: Blocked = field(default_factory=Blocked)
    first_sequences: int = 0
    """Sequences in the step that made its first token."""
    last_sequences: int = 0
    itl_max_s: float | None = None
    others_prefill_tokens_max: int = 0
    blocked: Blocked = field(default_factory=Blocked)
    """Until it is scheduled, the engine's sums at the first step that could have admitted it;
    afterwards their increase while it waited."""
    billed_s: float = 0.0
    """Its share of its steps, by its work in each."""
    wasted_s: float = 0.0
    """The same for work that an eviction discarded."""
    prefill: Shares = field(default_factory=Shares)
    decode: Shares = field(default_factory=Shares)

    made_tokens: int = 0
    """Output tokens up to the last time it joined or left the decodes."""
    target_tokens: int = 0
    """Tokens to compute before the next token can be produced."""
    computed_tokens: int = 0
    joined: int = -1
    """The step after which it decodes; −1 while it does not."""
    evicted: float | None = None
    """Start of its present recomputation after a preemption; None without one."""
    lost_tokens: int = 0
    """Tokens that it had computed when it was preempted."""
    before: "Sums | None" = None
    """The engine's sums when it joined the decodes."""
    admitted: int = -1
    """The engine's count of admissions when it last joined the batch."""
    lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        self.target_tokens = self.prompt_tokens
        self.lease = Lease(self.number)

    def lease_blocks(self, block_tokens: int) -> None:
        """Divide the shared prefix into blocks of this size."""
        segments, before = [], 0
        # The last token of an answer is not computed.
        computed_tokens = self.prompt_tokens + self.output_tokens - 1
        for key, end_tokens in self.prefixes:
            end = min(end_tokens, computed_tokens) // block_tokens
            if end > before:
                segments.append((key, end - before))
                before = end
        self.lease = Lease(self.number, tuple(segments))

    @property
    def order(self) -> tuple[int, float, int]:
        """Its place in the queue of the policy `priority`; the highest is preempted first."""
        return self.priority, self.queued if self.handed is None else self.handed, self.number

    @property
    def phase(self) -> Shares:
        """The shares of its present phase."""
        return self.prefill if self.first_token is None else self.decode

    @property
    def queue(self) -> QueueParts:
        """What it waited for before it was first scheduled."""
        waited_s = 0.0 if self.scheduled is None else self.scheduled - self.queued
        # Differences of running sums may be slightly negative by rounding.
        seats_s, kv_s, budget_s = (max(0.0, spent_s) for spent_s in self.blocked)
        step_s = max(0.0, waited_s - seats_s - kv_s - budget_s - self.held_s)
        return QueueParts(seats_s, kv_s, budget_s, self.held_s, step_s)

    def hold(self, at: float, blocked: Blocked) -> None:
        """Mark it as not eligible, whatever blocks the other requests."""
        self.held_since, self.blocked_then = at, blocked

    def let_go(self, at: float, blocked: Blocked) -> None:
        """Make it eligible again; what blocked the others meanwhile was not its wait."""
        self.held_s += at - self.held_since
        gone = zip(self.blocked, blocked, self.blocked_then, strict=True)
        self.blocked = Blocked(*(mine + now - then for mine, now, then in gone))

    def saw_prefill(self, others_tokens: int) -> None:
        """Record prompt tokens of others computed in one of its steps."""
        if others_tokens > self.others_prefill_tokens_max:
            self.others_prefill_tokens_max = others_tokens

    def saw_gap(self, gap_s: float) -> None:
        """Record the time between two of its tokens."""
        if self.itl_max_s is None or gap_s > self.itl_max_s:
            self.itl_max_s = gap_s
