"""The traffic of a fleet, as a stream of requests.

Pure. The seed determines the traffic. By default, arrivals are a Poisson process, and lengths are
as in a chat service. A recorded trace replaces the arrivals and the lengths. Tenants are always
drawn at random.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from replay.trace_csv import TraceRow
from simulator.conversations import ActiveConversations, Conversations
from simulator.token_lengths import ANSWERS, PROMPTS, Lengths


class Prefix(NamedTuple):
    """A system prompt that many requests share."""

    name: str
    tokens: int


class SimulatedHop(NamedTuple):
    """A request's visit to a prefill server or a decode server."""

    bits: int
    """The number that is the request's id. The prefill server and the decode server receive the
    same id."""
    prefilled: bool
    """Whether the KV cache of the prompt has been computed."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, with its weight in the traffic and its system prompts."""

    name: str
    weight: float
    prefixes: tuple[Prefix, ...] = ()
    acceptance: float = 0.75
    """Probability that a drafted token is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """A request as its client sends it."""

    at_s: float
    tenant: str
    prompt_tokens: int
    output_tokens: int
    cut: bool = False
    """Whether the output ends at max_tokens."""
    prefix: Prefix | None = None
    chat: bool = True
    streamed: bool = True
    leaves_after_tokens: int | None = None
    """Number of output tokens after which the client disconnects. If None, the client does not
    disconnect."""
    prompt: str | None = None
    """A name for the prompt. Requests with the same prompt have the same name. If None, no other
    request has the prompt."""
    timeout_s: float | None = None
    """Time after which the client gives up. If None, the client never gives up."""
    retries: int = 0
    """The number of times that the client sends the request again after a timeout."""
    malformed: bool = False
    lora: str | None = None
    grammar_s: float = 0.0
    """Time to compile the grammar of a structured output."""
    encoder_s: float | None = None
    """The encoder's time for the images, or None if the model accepts no images."""
    acceptance: float = 0.75
    reads_tokens_per_s: float | None = None
    """The client's reading speed. If None, the speed is unlimited."""
    hop: SimulatedHop | None = None
    """The visit to a prefill server or a decode server. It is None if one server does prefill and
    decode."""


IMAGE_S = (0.02, 0.08)
"""Range of the encoder's time for an image. The values are chosen, not measured."""

TENANTS = (
    Tenant("acme", 3.0, (Prefix("acme/support", 640), Prefix("acme/search", 288))),
    Tenant("globex", 2.5, (Prefix("globex/assistant", 480),)),
    Tenant("initech", 2.0, (Prefix("initech/code", 912),), acceptance=0.85),
    Tenant("umbrella", 1.5, (Prefix("umbrella/triage", 352),)),
    Tenant("hooli", 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The ordinary traffic of a fleet."""

    rate_per_s: float
    tenants: tuple[Tenant, ...] = TENANTS
    prompts: Lengths = PROMPTS
    answers: Lengths = ANSWERS
    prefix_share: float = 0.7
    """Probability that a prompt begins with a shorter system prompt of its tenant."""
    chat_share: float = 0.85
    streamed_share: float = 1.0
    """Share of streamed responses. If only a few responses are not streamed, they alone form the
    slow tail of the TTFT, because their first byte is sent at the end."""
    cut_share: float = 0.08
    abort_share: float = 0.01
    malformed_share: float = 0.003
    loras: tuple[str, ...] = ()
    lora_share: float = 0.3
    """Share of the requests with an adapter. The first adapters are used most often."""
    image_share: float = 0.0
    """Share of the requests with an image. It is 0 if the model accepts no images."""
    conversations: Conversations | None = None
    trace: tuple[TraceRow, ...] = ()
    """A recorded trace. If it is empty, arrivals and lengths are random."""

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < float("inf"):
            raise ValueError(f"rate_per_s: {self.rate_per_s}; allowed: more than 0, finite")
        if not self.tenants or any(not tenant.weight > 0 for tenant in self.tenants):
            raise ValueError(
                f"tenants: {self.tenants}; allowed: one or more, each with a weight above 0"
            )

    @classmethod
    def replay(cls, trace: tuple[TraceRow, ...]) -> Self:
        """A workload that replays a trace."""
        return cls(rate_per_s=len(trace) / max(trace[-1].at_s, 1.0), trace=trace)

    def arrivals(
        self, seed: str, from_s: float = 0.0, to_s: float = float("inf")
    ) -> Iterator[SimulatedRequest]:
        """Yield the requests that arrive in [`from_s`, `to_s`), in order of time."""
        chance = random.Random(seed)
        turns = ActiveConversations(self.conversations) if self.conversations else None
        if self.trace:
            for row in self.trace:
                if from_s <= row.at_s < to_s:
                    yield self.request(chance, row.at_s, turns, row)
            return
        at_s = from_s
        while (at_s := at_s + chance.expovariate(self.rate_per_s)) < to_s:
            yield self.request(chance, at_s, turns)

    def request(
        self,
        chance: random.Random,
        at_s: float,
        turns: ActiveConversations | None = None,
        row: TraceRow | None = None,
    ) -> SimulatedRequest:
        """A random request, with the lengths of `row` if it is given."""
        weights = [tenant.weight for tenant in self.tenants]
        tenant = chance.choices(self.tenants, weights)[0]
        prompt_tokens = self.prompts.draw(chance)
        output_tokens = self.answers.draw(chance)
        prefix = None
        if tenant.prefixes and chance.random() < self.prefix_share:
            prefix = chance.choice(tenant.prefixes)
        if row is not None:
            prompt_tokens, output_tokens = max(row.prompt_tokens, 1), max(row.output_tokens, 1)
        if turns is not None and chance.random() < turns.of.share:
            name, prompt_tokens = turns.next(chance, output_tokens)
            prefix = Prefix(name, prompt_tokens - 1)
        if prefix is not None and prefix.tokens >= prompt_tokens:
            prefix = None
        lora = None
        if self.loras and chance.random() < self.lora_share:
            lora = self.loras[min(int(chance.expovariate(0.7)), len(self.loras) - 1)]
        encoder_s = None
        if self.image_share:
            seen = chance.random() < self.image_share
            encoder_s = chance.uniform(*IMAGE_S) if seen else 0.0
        leaves = None
        if chance.random() < self.abort_share:
            leaves = chance.randint(1, output_tokens)
        return SimulatedRequest(
            at_s=at_s,
            tenant=tenant.name,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cut=chance.random() < self.cut_share,
            prefix=prefix,
            chat=chance.random() < self.chat_share,
            streamed=chance.random() < self.streamed_share,
            leaves_after_tokens=leaves,
            malformed=chance.random() < self.malformed_share,
            lora=lora,
            encoder_s=encoder_s,
            acceptance=tenant.acceptance,
        )
