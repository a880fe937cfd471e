"""Why a scrape told nothing: each reason spelled once, as counters and people hear it."""

from enum import StrEnum


class Reason(StrEnum):
    """What was amiss with a target."""

    UNREACHABLE = "unreachable"
    """No such name, or no connection."""
    TLS = "tls"
    """No TLS with it: its certificate is not trusted, is another's, or it speaks none."""
    NO_TOKEN = "no_token"
    """The token to show cannot be had here."""
    UNAUTHORISED = "unauthorised"
    """It wants a token, or another one: 401 or 403."""
    TIMEOUT = "timeout"
    """It did not answer whole within the time."""
    REDIRECT = "redirect"
    """It sent us elsewhere; nobody said to go there."""
    HTTP_STATUS = "http_status"
    """A status that is none of these and not 200."""
    TOO_LARGE = "too_large"
    """More than the limit, of bytes or of series."""
    MALFORMED = "malformed"
    """No HTTP, no text, or no exposition format."""
    UNKNOWN_ENGINE = "unknown_engine"
    """It holds no series of an engine that is known."""
    NOT_STORED = "not_stored"
    """It told, and the store did not take it."""
    FAILED = "failed"
    """A defect here; the log says more."""


class ScrapeError(Exception):
    """A scrape told nothing.

    Args:
        reason: why.
        detail: more about it, for the log.
    """

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


class DiscoveryError(Exception):
    """Targets cannot be found just now; the message says why."""
