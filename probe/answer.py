"""The content of a streamed answer, and when its parts arrived."""

from dataclasses import dataclass

from probe.errors import ProbeFailure

MAX_COUNT = 2**31 - 1
"""Maximum number of tokens. The collector refuses a result with a larger number."""
_LONGEST_MS = 7 * 86_400_000
"""Maximum duration that a response may report: a week."""


@dataclass(slots=True)
class ProbeAnswer:
    """Collects the events of one answer. Instants (`…_at`) are seconds of the loop's clock.

    `output_tokens` is the number that the server reports. `chunks` is the number of events. An
    event may have several tokens.
    """

    max_tokens: int
    first_event_at: float | None = None
    first_reasoning_at: float | None = None
    first_content_at: float | None = None
    last_chunk_at: float | None = None
    longest_gap_s: float | None = None
    chunks: int = 0
    response_id: str | None = None
    finish: str | None = None
    """Why the answer ended, which is `stop` or `length`."""
    complete: bool = False
    """Whether the protocol's last event arrived."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    server_queue_s: float | None = None
    """The queue time that the response reports. The other `server_…` durations are also from the
    response."""
    server_prefill_s: float | None = None
    server_decode_s: float | None = None

    def reasoning(self, at: float) -> None:
        """Add an event with tokens of reasoning."""
        if self.first_reasoning_at is None:
            self.first_reasoning_at = at
        self._chunk(at)

    def content(self, at: float) -> None:
        """Add an event with tokens of content."""
        if self.first_content_at is None:
            self.first_content_at = at
        self._chunk(at)

    def check_complete(self) -> None:
        """Raise ProbeFailure if the answer ended before its last event."""
        if not self.complete:
            raise ProbeFailure("truncated", "the answer ended before its last event")

    def _chunk(self, at: float) -> None:
        if self.last_chunk_at is not None:
            gap_s = at - self.last_chunk_at
            self.longest_gap_s = max(gap_s, self.longest_gap_s or 0.0)
        self.last_chunk_at = at
        self.chunks += 1
        # Each event has at least one token. A server that ignores max_tokens could exceed the
        # budget.
        if self.chunks > self.max_tokens:
            raise ProbeFailure(
                "max_tokens", f"the server sent more tokens than max_tokens {self.max_tokens}"
            )


def text_of(value: object) -> str | None:
    """A non-empty text, or None."""
    return value if isinstance(value, str) and value else None


def count_of(value: object) -> int | None:
    """A number of tokens. It is None if the number is unknown, invalid or above `MAX_COUNT`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MAX_COUNT else None  # type: ignore[operator,return-value]


def seconds_of_ms(value: object) -> float | None:
    """Return milliseconds as seconds. Return None if they are unknown or invalid."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value / 1e3 if number and 0 <= value <= _LONGEST_MS else None  # type: ignore[operator]


def mapping_of(value: object) -> dict[str, object]:
    """A JSON object. It is empty if the value is not an object."""
    return value if isinstance(value, dict) else {}


def first_of(value: object) -> dict[str, object]:
    """The first object of a JSON array. It is empty if the array has no object."""
    return mapping_of(value[0]) if isinstance(value, list) and value else {}


def stream_error(error: object) -> ProbeFailure:
    """Convert an error object in a stream to a failure."""
    about = mapping_of(error)
    kind = text_of(about.get("type")) or text_of(about.get("status")) or text_of(about.get("code"))
    message = text_of(about.get("message")) or text_of(error) or "without a message"
    return ProbeFailure(
        "stream_error", f"the stream contained an error: {f'{kind}: ' if kind else ''}{message}"
    )
