"""The bytes that precede reasoning, tool calls and content in vLLM's answers.

A marker contains a quote or a line break. JSON escapes these characters inside a text. No bytes are
parsed or kept.

Source: vLLM 0.12 to 0.33, `entrypoints/openai` and `entrypoints/anthropic`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

QUOTE: Final = ord('"')
_REASONING_TOKENS: Final = b'"reasoning_tokens":'
_MAX_DIGITS: Final = 12


class Markers(NamedTuple):
    """The bytes before each kind of text. If a quote follows a marker directly, the text is
    empty."""

    content: bytes
    reasoning: tuple[bytes, ...] = ()
    tool_call: tuple[bytes, ...] = ()
    event_lines: int = 1
    """Number of lines of one event, without the empty line at its end."""


_CHAT: Final = Markers(
    b'"content":"', (b'"reasoning":"', b'"reasoning_content":"'), (b'"tool_calls":[{"',)
)
STREAMED: Final[Mapping[str, Markers]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Markers(b'"text":"'),
    "/v1/responses": Markers(
        b"event: response.output_text.delta\n",
        (
            b"event: response.reasoning_text.delta\n",
            b"event: response.reasoning_summary_text.delta\n",
        ),
        (
            b"event: response.function_call_arguments.delta\n",
            b"event: response.mcp_call_arguments.delta\n",
            b"event: response.code_interpreter_call_code.delta\n",
        ),
        event_lines=2,
    ),
    "/v1/messages": Markers(
        b'"type":"text_delta","text":"',
        (b'"type":"thinking_delta"',),
        (b'"type":"input_json_delta"',),
        event_lines=2,
    ),
}

WHOLE: Final[Mapping[str, Markers]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Markers(b'"text":"'),
    "/v1/responses": Markers(
        b'"type":"output_text"',
        (b'"type":"reasoning"',),
        (b'"type":"function_call"', b'"type":"mcp_call"', b'"type":"code_interpreter_call"'),
    ),
    "/v1/messages": Markers(
        b'"type":"text","text":"', (b'"type":"thinking"',), (b'"type":"tool_use"',)
    ),
}


def end_of(body: bytes, marker: bytes, end: int | None = None) -> int | None:
    """The position after the first marker before `end` whose text is not empty."""
    at = body.find(marker, 0, end)
    while at >= 0:
        after = at + len(marker)
        if after < len(body) and body[after] != QUOTE:
            return after
        at = body.find(marker, after, end)
    return None


def beginning_at_end(body: bytes, marker: bytes) -> bytes:
    """The longest prefix of a marker that is at the end of the bytes."""
    for length in range(len(marker), 0, -1):
        if body.endswith(marker[:length]):
            return marker[:length]
    return b""


def reported_reasoning(body: bytes) -> int | None:
    """Number of reasoning tokens from an answer's `usage`, if any."""
    at = body.rfind(_REASONING_TOKENS)
    if at < 0:
        return None
    begin = at + len(_REASONING_TOKENS)
    digits = body[begin : begin + _MAX_DIGITS]
    length = len(digits) - len(digits.lstrip(b"0123456789"))
    return int(digits[:length]) if 0 < length < len(digits) else None
