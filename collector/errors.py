"""Errors for messages that were not acknowledged.

Source: OpenTelemetry protocol specification, "OTLP/gRPC response" and "OTLP/HTTP response". The
codes are from google.rpc.Code.
"""

from typing import ClassVar

RETRY_AFTER_S = 1
"""The response asks the sender to wait this long before a retry. A commit usually takes
milliseconds."""


class CollectorError(Exception):
    """Base class of the collector's errors."""


class ListenError(CollectorError):
    """The collector cannot listen on the address."""


class SecurityError(CollectorError):
    """A token or certificate is not usable. The error names the file, but contains no secret."""


class IntakeError(CollectorError):
    """A message was not acknowledged. The subclass defines the reason and whether to retry."""

    result: ClassVar[str]
    http_status: ClassVar[int]
    rpc_code: ClassVar[int]
    retry_after_s: int | None = None


class MalformedError(IntakeError):
    """The body is malformed, or is not of the declared content type."""

    result, http_status, rpc_code = "malformed", 400, 3


class UnreadableError(IntakeError):
    """A defect of the collector prevented it from reading the message, so a retry fails too."""

    result, http_status, rpc_code = "unreadable", 400, 3


class TooLargeError(IntakeError):
    """The body exceeds the size limit, before or after decompression."""

    result, http_status, rpc_code = "too_large", 413, 8


class UnsupportedError(IntakeError):
    """The body's content type or compression is not supported."""

    result, http_status, rpc_code = "unsupported", 415, 3


class IntakeBusyError(IntakeError):
    """The memory for messages is used up at the moment."""

    result, http_status, rpc_code, retry_after_s = "busy", 503, 8, RETRY_AFTER_S


class StoppingError(IntakeError):
    """The collector is stopping; the sender can retry after the restart."""

    result, http_status, rpc_code, retry_after_s = "stopping", 503, 14, RETRY_AFTER_S

    def __init__(self) -> None:
        super().__init__("the collector is stopping and has not stored this message; send it again")


class TooSlowError(IntakeError):
    """The message did not arrive in time."""

    result, http_status, rpc_code, retry_after_s = "too_slow", 503, 4, RETRY_AFTER_S


class ThrottledError(IntakeError):
    """The sender, or all senders together, exceeded a rate limit."""

    result, http_status, rpc_code = "throttled", 429, 8

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnauthenticatedError(IntakeError):
    """The token is missing or wrong."""

    result, http_status, rpc_code = "unauthenticated", 401, 16


class ForbiddenError(IntakeError):
    """The Host or Origin is not allowed, or telemetry was sent with a token that has a role. Such
    tokens can only read."""

    result, http_status, rpc_code = "forbidden", 403, 7


class StoreFailedError(IntakeError):
    """The rows were not committed; a retry may succeed."""

    result, http_status, rpc_code, retry_after_s = "store_failed", 503, 14, RETRY_AFTER_S


class StoreRefusedError(IntakeError):
    """The store cannot store these rows, so a retry fails too."""

    result, http_status, rpc_code = "store_refused", 400, 3


RESULTS = (
    "acknowledged",
    "failed",
    *(
        kind.result
        for kind in (
            MalformedError,
            UnreadableError,
            TooLargeError,
            UnsupportedError,
            IntakeBusyError,
            StoppingError,
            TooSlowError,
            ThrottledError,
            UnauthenticatedError,
            ForbiddenError,
            StoreFailedError,
            StoreRefusedError,
        )
    ),
)
"""Values of the message counter's label `result`. `failed` counts defects of the collector."""
