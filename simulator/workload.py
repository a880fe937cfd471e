"""Generate the traffic of a fleet: a stream of requests.

Pure: the seed determines the stream. By default, arrivals are a Poisson process, and prompt and
output lengths have the distribution of a chat service. If a recorded trace is given, arrivals and
lengths come from the trace. Tenants are always drawn at random.
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
    """A request's visit to a prefill server or to a decode server."""

    bits: int
    """The id of the request, which the router sends to both servers."""
    prefilled: bool
    """Whether a prefill server has computed the KV cache of the prompt."""


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
    """Number of tokens in the complete output."""
    cut: bool = False
    """True if the output ends because it reaches max_tokens."""
    prefix: Prefix | None = None
    chat: bool = True
    streamed: bool = True
    leaves_after_tokens: int | None = None
    """Number of output tokens after which the client disconnects; None if the client stays
    connected."""
    prompt: str | None = None
    """Name of the prompt; requests with the same name have the same prompt. None means that no
    other request has this prompt."""
    timeout_s: float | None = None
    """Seconds after which the client gives up without a complete response; None for no limit."""
    retries: int = 0
    """Number of times that the client sends the request again, immediately after a timeout."""
    malformed: bool = False
    lora: str | None = None
    grammar_s: float = 0.0
    """Seconds to compile the grammar of the structured output; 0 if there is nothing to compile."""
    encoder_s: float | None = None
    """Seconds that the encoder takes for the prompt's images; None if the model accepts no
    images."""
    acceptance: float = 0.75
    reads_tokens_per_s: float | None = None
    """Reading speed of the client in tokens per second; None for unlimited."""
    hop: SimulatedHop | None = None
    """The request's visit to its prefill server or decode server; None if one server does both."""


IMAGE_S = (0.02, 0.08)
"""Minimum and maximum seconds that the encoder takes for an image. Chosen, not measured."""

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
    """Probability that a prompt begins with one of the tenant's system prompts, if the prompt is
    longer than this system prompt."""
    chat_share: float = 0.85
    streamed_share: float = 1.0
    """Share of streamed responses. The default is 1, because chat responses are streamed.

    The first byte of an unstreamed response is sent when the response is complete. So a few
    unstreamed responses would be the whole tail of TTFT.
    """
    cut_share: float = 0.08
    abort_share: float = 0.01
    malformed_share: float = 0.003
    loras: tuple[str, ...] = ()
    lora_share: float = 0.3
    """Share of the requests that use an adapter. The first adapters are used most often."""
    image_share: float = 0.0
    """Share of the requests with an image; 0 if the model accepts no images."""
    conversations: Conversations | None = None
    trace: tuple[TraceRow, ...] = ()
    """A recorded trace, whose arrivals and lengths are used; empty for random arrivals and
    lengths."""

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < float("inf"):
            raise ValueError(f"rate_per_s: {self.rate_per_s}; allowed: more than 0, finite")
        if not self.tenants or any(not tenant.weight > 0 for tenant in self.tenants):
            raise ValueError(
                f"tenants: {self.tenants}; allowed: one or more, each with a weight above 0"
            )

    @classmethod
    def replay(cls, trace: tuple[TraceRow, ...]) -> Self:
        """Return a workload that replays a recorded trace."""
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
        """Return a random request. If `row` is given, its lengths come from this row of a trace."""
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
