"""Simulate conversations. Pure.

In a conversation, each prompt contains the conversation so far and some new text. A few dozen
conversations are active at a time. When a conversation ends, a new conversation replaces it.
"""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """The share of conversations in the traffic, and how they grow."""

    share: float = 0.7
    at_once: int = 60
    turns: int = 8
    first_tokens: tuple[int, int] = (1_500, 4_000)
    """The range of the first prompt's length in tokens."""
    turn_tokens: tuple[int, int] = (30, 250)
    """The range of the length in tokens of the user's text in each later prompt."""

    @property
    def mean_tokens(self) -> float:
        """The number of prompt tokens in the middle of a conversation. It is about the mean."""
        turn = sum(self.turn_tokens) / 2 + 200
        return sum(self.first_tokens) / 2 + turn * (self.turns - 1) / 2


@dataclass(slots=True)
class _Conversation:
    name: str
    tokens: int
    turns: int


@dataclass(slots=True)
class ActiveConversations:
    """The active conversations."""

    of: Conversations
    _going: list[_Conversation] = field(default_factory=list)
    _begun: int = 0

    def next(self, chance: random.Random, output_tokens: int) -> tuple[str, int]:
        """Choose a conversation at random. Return its name and its next prompt's length."""
        place = chance.randrange(self.of.at_once)
        if place >= len(self._going):
            self._begun += 1
            new = _Conversation(f"talk/{self._begun}", chance.randint(*self.of.first_tokens), 0)
            self._going.append(new)
            place = len(self._going) - 1
        talk = self._going[place]
        if talk.turns:
            talk.tokens += chance.randint(*self.of.turn_tokens)
        prompt_tokens = talk.tokens
        talk.tokens += output_tokens
        talk.turns += 1
        if talk.turns >= self.of.turns:
            del self._going[place]
        return talk.name, prompt_tokens
