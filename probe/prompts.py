"""Prompts with a nonce, each sent twice.

The first prompt begins with a new nonce, so no cache contains it. Its twin is the same text, sent
in the next interval, if the first prompt was answered. The difference of the two is the effect of
the prefix cache.
"""

import secrets
from typing import Final

from probe.plan import Endpoint

_WORDS: Final = (
    *("the", "time", "people", "water", "day", "way", "world", "life", "hand", "part", "place"),
    *("work", "week", "case", "point", "number", "group", "fact", "night", "home", "room", "area"),
)
"""Words that are one token each, with the space before them, in common vocabularies."""
_FRAME_TOKENS: Final = 24
"""Approximate tokens of the nonce and the instruction."""


def fresh_prompt(endpoint: Endpoint) -> str:
    """Return a prompt that was never sent before.

    `prompt_tokens` is approximate, because vocabularies differ. Results have the exact number.
    """
    nonce = secrets.token_hex(8)
    if endpoint.prompt_text is not None:
        return f"{nonce}\n{endpoint.prompt_text}"
    words = max((endpoint.prompt_tokens or 0) - _FRAME_TOKENS, 0)
    filler = " ".join(_WORDS[place % len(_WORDS)] for place in range(words))
    return f"{nonce} Count from one upwards, in words.{' ' if filler else ''}{filler}"


class Prompts:
    """The prompts of one endpoint: a new prompt, its twin, the next new prompt, and so on."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._last: str | None = None

    def next(self) -> tuple[str, bool]:
        """Return a prompt, and whether it is the twin of the last prompt."""
        if self._last is None:
            self._last = fresh_prompt(self._endpoint)
            return self._last, False
        prompt, self._last = self._last, None
        return prompt, True

    def unanswered(self) -> None:
        """Send a new prompt next, because no cache may contain the last one."""
        self._last = None
