"""Finds when an answer's first content was sent, and counts the tokens of each kind.

A kind is reasoning, a tool call or content. If a chunk is one event of the same kind as the
previous chunk, it is not searched. A chunk's tokens are counted with vLLM's own counter. If the
tokens cannot be counted, the search ends at the first content.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from tailspan_vllm.request.answer_markers import (
    QUOTE,
    STREAMED,
    WHOLE,
    Markers,
    beginning_at_end,
    end_of,
    reported_reasoning,
)

_NEWLINE: Final = b"\n"
"""The end of a line. vLLM sends every event as one ASGI message with one or two lines and an empty
line."""

CONTENT, REASONING, TOOL_CALL = 0, 1, 2


class KindTokens(NamedTuple):
    """Output tokens by kind, or None if they are unknown. If all three numbers are known, they sum
    to the output tokens.

    Tokens that are not shown, such as a tag that ends the reasoning, count for the kind that
    follows.
    """

    reasoning: int | None = None
    tool_call: int | None = None
    content: int | None = None


@cache
def _by_kind(markers: Markers) -> tuple[tuple[int, bytes], ...]:
    kinds = (CONTENT, (markers.content,)), (REASONING, markers.reasoning)
    return tuple(
        (kind, marker)
        for kind, found in (*kinds, (TOOL_CALL, markers.tool_call))
        for marker in found
    )


class Flights(Protocol):
    """The engine requests of one exchange, as in `Exchange.flights`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class StreamedAnswer:
    """Tokens are counted if `flights` has exactly one request when the first kind is found."""

    __slots__ = (
        "_after",
        "_at",
        "_awaits_content",
        "_before",
        "_carried",
        "_counting",
        "_counts",
        "_flights",
        "_kind",
        "_marker",
        "_markers",
        "_repeats",
        "_seen",
        "_stats",
        "_two_lines",
        "_without_kind",
        "first_content",
    )

    def __init__(self, markers: Markers, flights: Flights) -> None:
        self.first_content: float | None = None
        self._awaits_content = True
        self._repeats = False
        self._markers = markers
        self._two_lines = markers.event_lines == 2
        self._flights = flights
        self._counting = True
        self._stats: Any = None
        """vLLM's `RequestStateStats`, set when the first kind is found."""
        self._kind: int | None = None
        self._marker = markers.content
        self._at = self._after = 0
        """Where the current kind's marker begins and ends: the same in every chunk of a stream."""
        self._counts = [0, 0, 0]
        self._before = self._seen = 0
        """Tokens before the current kind began, and up to the last chunk that had a kind."""
        self._carried = b""
        """The beginning of a marker that is divided between two chunks."""
        self._without_kind = 0, 0
        """Length and hash of the last event without a kind. All events of a stream with an empty
        text are equal."""

    def sent(self, body: bytes) -> bool:
        """Search the next bytes. Return False if no more bytes are needed."""
        if (
            self._repeats
            and body.startswith(self._marker, self._at)
            and body.find(_NEWLINE) == len(body) - 2
            and body[self._after] != QUOTE
        ):
            self._seen = self._stats.num_generation_tokens
            return True
        return self._search(body)

    def _search(self, body: bytes) -> bool:
        if not self._counting:
            return self._find_content(body)
        length, hashed = self._without_kind
        if len(body) == length and hash(body) == hashed:
            return True
        end = body.find(_NEWLINE)
        if self._two_lines:
            end = body.find(_NEWLINE, end + 1)
        if end != len(body) - 2:
            # A different ASGI layer has divided or joined events.
            self._counting = False
            return self._find_content(body)
        if (
            not body.startswith(self._marker, self._at)
            or body[self._after] == QUOTE
            or (self._awaits_content and body.find(self._markers.content) >= 0)
        ):
            kind = self._kind_of(body)
            if kind is None:
                self._without_kind = len(body), hash(body)
                return True
            if kind != self._kind and not self._begin(kind):
                return self.first_content is None
        self._seen = self._stats.num_generation_tokens
        # An answer of /v1/completions has only content.
        return self.first_content is None or len(_by_kind(self._markers)) > 1

    def tokens(self, output_tokens: int) -> KindTokens:
        """The number of tokens of each kind in an answer that has ended."""
        if not self._counting or self._kind is None or output_tokens < self._seen:
            return KindTokens()
        counts = self._counts.copy()
        counts[self._kind] += output_tokens - self._before
        return KindTokens(counts[REASONING], counts[TOOL_CALL], counts[CONTENT])

    def end(self) -> None:
        """Release vLLM's objects."""
        self._stats, self._flights = None, ()

    def _kind_of(self, body: bytes) -> int | None:
        """The kind of one event. If an event has content and a different kind, return content."""
        for kind, marker in _by_kind(self._markers):
            after = end_of(body, marker)
            if after is not None:
                self._marker, self._at, self._after = marker, after - len(marker), after
                return kind
        return None

    def _begin(self, kind: int) -> bool:
        """Begin a new kind. Return whether its tokens can be counted."""
        if kind == CONTENT and self.first_content is None:
            self.first_content = time.monotonic()
            self._awaits_content = False
            # From now on, most events need only the short search in `sent`.
            self._repeats = not self._two_lines
        if self._kind is None:
            self._stats = next(iter(self._flights)).stats if len(self._flights) == 1 else None
            self._counting = self._stats is not None
        else:
            self._counts[self._kind] += self._seen - self._before
            self._before = self._seen
        self._kind = kind
        return self._counting

    def _find_content(self, body: bytes) -> bool:
        if self.first_content is not None:
            return False
        body = self._carried + body
        if end_of(body, self._markers.content) is not None:
            self.first_content = time.monotonic()
            return False
        self._carried = beginning_at_end(body, self._markers.content)
        return True


class WholeAnswer:
    """Finds the kinds in an answer that is not streamed. vLLM sends this answer as one chunk."""

    __slots__ = ("_bodies", "_carried", "_found", "_markers", "_reported", "first_content")

    def __init__(self, markers: Markers) -> None:
        self.first_content: float | None = None
        self._markers = markers
        self._bodies = 0
        self._found = (False, False, False)
        self._reported: int | None = None
        self._carried = b""

    def sent(self, body: bytes) -> bool:
        """Search the next bytes. Return False if no more bytes are needed."""
        self._bodies += 1
        body = self._carried + body
        content, reasoning, tool_call = self._markers[:3]
        # A tool call's arguments may be JSON that contains markers.
        call_at = min((at for each in tool_call if (at := body.find(each)) >= 0), default=len(body))
        found = end_of(body, content, call_at) is not None
        self._found = (
            found,
            any(end_of(body, each) is not None for each in reasoning),
            call_at < len(body),
        )
        self._reported = reported_reasoning(body)
        if found and self.first_content is None:
            self.first_content = time.monotonic()
        self._carried = beginning_at_end(body, content)
        return True

    def tokens(self, output_tokens: int) -> KindTokens:
        """The number of tokens of each kind in an answer that has ended."""
        if self._bodies != 1:
            return KindTokens()
        found_content, found_reasoning, found_call = self._found
        reasoning = self._reported
        if reasoning is None or (reasoning == 0 and found_reasoning):
            # Some of vLLM's parsers cannot count reasoning tokens, and report 0.
            reasoning = None if found_reasoning else 0
        if reasoning is None or reasoning > output_tokens:
            return KindTokens()
        rest = output_tokens - reasoning
        if found_content == found_call:
            return KindTokens(reasoning)
        return KindTokens(reasoning, rest if found_call else 0, rest if found_content else 0)

    def end(self) -> None:
        """Do nothing, because this object refers to no objects of vLLM."""


Answer = StreamedAnswer | WholeAnswer


def answer_of(path: str, streamed: bool, flights: Flights) -> Answer | None:
    """The reader of a route's answers, or None for other routes."""
    markers = (STREAMED if streamed else WHOLE).get(path)
    if markers is None:
        return None
    return StreamedAnswer(markers, flights) if streamed else WholeAnswer(markers)
