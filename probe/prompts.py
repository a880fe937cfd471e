"""Prompts with a nonce. Each prompt is sent twice, to measure the effect of the prefix cache.

A new prompt begins with a nonce (a random number), so no cache contains the prompt. If the new
prompt is answered, the next probe of the endpoint sends the prompt again. This repeated prompt is
called the twin. The effect of the prefix cache is the latency of the twin minus the latency of the
new prompt.
"""

import secrets
from typing import Final

from probe.plan import Endpoint

_WORDS: Final = (
    *("the", "time", "people", "water", "day", "way", "world", "life", "hand", "part", "place"),
    *("work", "week", "case", "point", "number", "group", "fact", "night", "home", "room", "area"),
)
"""The words of the prompts. Each word, with the space before it, is one token in common
vocabularies."""
_FRAME_TOKENS: Final = 24
"""Approximate number of tokens of the nonce and the instruction."""


def fresh_prompt(endpoint: Endpoint) -> str:
    """Return a prompt of about `prompt_tokens` tokens that was never sent before.

    The length is not exact, because models have different vocabularies. The result of the probe has
    the exact number of tokens.
    """
    nonce = secrets.token_hex(8)
    if endpoint.prompt_text is not None:
        return f"{nonce}\n{endpoint.prompt_text}"
    words = max((endpoint.prompt_tokens or 0) - _FRAME_TOKENS, 0)
    filler = " ".join(_WORDS[place % len(_WORDS)] for place in range(words))
    return f"{nonce} Count from one upwards, in words.{' ' if filler else ''}{filler}"


class Prompts:
    """The prompts of one endpoint: a new prompt, the same prompt again (its twin), another new
    prompt, and so on."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._last: str | None = None

    def next(self) -> tuple[str, bool]:
        """Return the next prompt, and whether it is a twin (repeats the previous prompt)."""
        if self._last is None:
            self._last = fresh_prompt(self._endpoint)
            return self._last, False
        prompt, self._last = self._last, None
        return prompt, True

    def unanswered(self) -> None:
        """Make the next prompt a new prompt. The last prompt was not answered, so the cache may
        lack it, and a twin would measure nothing."""
        self._last = None
