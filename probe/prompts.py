"""Prompts that measure the effect of the prefix cache.

A new prompt begins with a random text (the nonce), so no cache contains it. If the endpoint answers
the prompt, the next probe sends the same prompt again. This repetition is called the twin. The
effect of the cache is the difference in latency between the prompt and its twin.
"""

import secrets
from typing import Final

from probe.plan import Endpoint

_WORDS: Final = (
    *("the", "time", "people", "water", "day", "way", "world", "life", "hand", "part", "place"),
    *("work", "week", "case", "point", "number", "group", "fact", "night", "home", "room", "area"),
)
"""The words of a prompt. Each word, with the space before it, is one token in common
vocabularies."""
_FRAME_TOKENS: Final = 24
"""Approximate number of tokens of the random text and the instruction in each prompt."""


def fresh_prompt(endpoint: Endpoint) -> str:
    """A prompt of about `prompt_tokens` tokens that was never sent before.

    The number is approximate, because vocabularies differ. The result of the probe contains the
    exact number.
    """
    nonce = secrets.token_hex(8)
    if endpoint.prompt_text is not None:
        return f"{nonce}\n{endpoint.prompt_text}"
    words = max((endpoint.prompt_tokens or 0) - _FRAME_TOKENS, 0)
    filler = " ".join(_WORDS[place % len(_WORDS)] for place in range(words))
    return f"{nonce} Count from one upwards, in words.{' ' if filler else ''}{filler}"


class Prompts:
    """The prompts of one endpoint. New prompts and their twins alternate."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._last: str | None = None

    def next(self) -> tuple[str, bool]:
        """The next prompt, and whether it is a twin."""
        if self._last is None:
            self._last = fresh_prompt(self._endpoint)
            return self._last, False
        prompt, self._last = self._last, None
        return prompt, True

    def unanswered(self) -> None:
        """Make the next prompt a new prompt, because the last prompt may not be in the cache."""
        self._last = None
