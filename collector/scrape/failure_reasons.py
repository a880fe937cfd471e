"""The reasons why a scrape can fail, in counters and messages."""

from enum import StrEnum


class ScrapeFailureReason(StrEnum):
    """The reason for a failed scrape."""

    UNREACHABLE = "unreachable"
    """The name does not resolve, or the connection fails."""
    TLS = "tls"
    """The certificate is not trusted or is for another name, or the target does not use TLS."""
    NO_TOKEN = "no_token"
    """The token file cannot be used."""
    UNAUTHORISED = "unauthorised"
    """The target responded with status 401 or 403. A token may or may not have been sent."""
    TIMEOUT = "timeout"
    """The response was not complete within the time limit."""
    REDIRECT = "redirect"
    """The target sent a redirect. Tailspan does not follow redirects."""
    HTTP_STATUS = "http_status"
    """The status of the response is not 200."""
    TOO_LARGE = "too_large"
    """The response has more bytes or series than the limit."""
    MALFORMED = "malformed"
    """The response is not HTTP, not text, or not in the exposition format."""
    UNKNOWN_ENGINE = "unknown_engine"
    """The response has no series of a known engine."""
    NOT_STORED = "not_stored"
    """The store did not accept the samples."""
    FAILED = "failed"
    """Tailspan has a defect; the log has details."""


class ScrapeError(Exception):
    """A scrape failed."""

    def __init__(self, reason: ScrapeFailureReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


class DiscoveryError(Exception):
    """Targets cannot be discovered at the moment; the message states the reason."""
