"""Why a scrape failed: the reasons in counters and messages."""

from enum import StrEnum


class Reason(StrEnum):
    """The kind of a failure."""

    UNREACHABLE = "unreachable"
    """The name does not resolve, or the connection fails."""
    TLS = "tls"
    """TLS fails: the certificate is not trusted or has another name, or the target has no TLS."""
    NO_TOKEN = "no_token"
    """The token for this target is not available here."""
    UNAUTHORISED = "unauthorised"
    """The target requires a token, or another one: 401 or 403."""
    TIMEOUT = "timeout"
    """The answer was not complete in time."""
    REDIRECT = "redirect"
    """The target redirects, which is not followed."""
    HTTP_STATUS = "http_status"
    """The status of the answer is not 200."""
    TOO_LARGE = "too_large"
    """The answer has more bytes or series than the limit."""
    MALFORMED = "malformed"
    """The answer is not HTTP, not text, or not in the exposition format."""
    UNKNOWN_ENGINE = "unknown_engine"
    """The answer has no series of a known engine."""
    NOT_STORED = "not_stored"
    """The store did not accept the samples."""
    FAILED = "failed"
    """A defect of Tailspan; the log has details."""


class ScrapeError(Exception):
    """A scrape failed.

    Args:
        reason: the kind of failure.
        detail: details for the log.
    """

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


class DiscoveryError(Exception):
    """Targets cannot be discovered at the moment; the message has the reason."""
