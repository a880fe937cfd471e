"""The errors that a sender receives instead of an acknowledgement, for both transports.

Source: OpenTelemetry protocol specification, "OTLP/gRPC response" and "OTLP/HTTP response";
the codes are google.rpc.Code.
"""

from typing import ClassVar

RETRY_AFTER_S = 1
"""Pause that senders are asked to make. A commit usually takes milliseconds."""


class CollectorError(Exception):
    """Any refusal of the collector."""


class ListenError(CollectorError):
    """The collector cannot listen on the given address."""


class SecurityError(CollectorError):
    """Tokens or certificates are not usable. The message names the file, but contains no secret."""


class IntakeError(CollectorError):
    """A message was not acknowledged. The subclass determines the reason and whether to retry."""

    result: ClassVar[str]
    http_status: ClassVar[int]
    rpc_code: ClassVar[int]
    retry_after_s: int | None = None


class MalformedError(IntakeError):
    """The body is not of the declared type."""

    result, http_status, rpc_code = "malformed", 400, 3


class UnreadableError(IntakeError):
    """Reading the body failed because of a defect, and would fail again: do not retry."""

    result, http_status, rpc_code = "unreadable", 400, 3


class TooLargeError(IntakeError):
    """The body exceeds the limit, as sent or once decompressed."""

    result, http_status, rpc_code = "too_large", 413, 8


class UnsupportedError(IntakeError):
    """A content type or encoding that is not supported."""

    result, http_status, rpc_code = "unsupported", 415, 3


class BusyError(IntakeError):
    """There is no memory for the message at the moment."""

    result, http_status, rpc_code, retry_after_s = "busy", 503, 8, RETRY_AFTER_S


class StoppingError(IntakeError):
    """The collector is stopping; the message can be sent again after a restart."""

    result, http_status, rpc_code, retry_after_s = "stopping", 503, 14, RETRY_AFTER_S

    def __init__(self) -> None:
        super().__init__("the collector is stopping and has not stored this; send again")


class TooSlowError(IntakeError):
    """The message did not arrive in time."""

    result, http_status, rpc_code, retry_after_s = "too_slow", 503, 4, RETRY_AFTER_S


class ThrottledError(IntakeError):
    """The sender, or all senders together, exceeded a rate."""

    result, http_status, rpc_code = "throttled", 429, 8

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnauthenticatedError(IntakeError):
    """No token, or a wrong one."""

    result, http_status, rpc_code = "unauthenticated", 401, 16


class ForbiddenError(IntakeError):
    """The Host or the Origin of the request is not allowed."""

    result, http_status, rpc_code = "forbidden", 403, 7


class StoreFailedError(IntakeError):
    """The rows were not committed; a retry may succeed."""

    result, http_status, rpc_code, retry_after_s = "store_failed", 503, 14, RETRY_AFTER_S


class StoreRefusedError(IntakeError):
    """The store cannot keep these rows; a retry would fail, too."""

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
            BusyError,
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
"""The results of a message; `failed` is a defect of the collector."""
