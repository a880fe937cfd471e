"""What a sender can be told instead of an acknowledgement, in the words of both transports.

Source: OpenTelemetry protocol specification, "OTLP/gRPC response" and "OTLP/HTTP response";
the codes are google.rpc.Code.
"""

from typing import ClassVar

RETRY_AFTER_S = 1
"""A commit takes milliseconds: a second later the queue has moved or the trouble is real."""


class CollectorError(Exception):
    """Anything that the collector says no to."""


class ListenError(CollectorError):
    """The collector cannot listen where it was told to."""


class SecurityError(CollectorError):
    """Tokens or certificates cannot be had; names the file, never what is secret in it."""


class IntakeError(CollectorError):
    """A message was not acknowledged. The classes below say why and whether to send again."""

    result: ClassVar[str]
    http_status: ClassVar[int]
    rpc_code: ClassVar[int]
    retry_after_s: int | None = None


class MalformedError(IntakeError):
    """The body is not what it claims to be."""

    result, http_status, rpc_code = "malformed", 400, 3


class UnreadableError(IntakeError):
    """Reading the body failed by a defect of ours, and would again: not to be sent again."""

    result, http_status, rpc_code = "unreadable", 400, 3


class TooLargeError(IntakeError):
    """The body exceeds the limit, as sent or once decompressed."""

    result, http_status, rpc_code = "too_large", 413, 8


class UnsupportedError(IntakeError):
    """A content type or encoding that is not spoken here."""

    result, http_status, rpc_code = "unsupported", 415, 3


class BusyError(IntakeError):
    """There is no room just now."""

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
    """The sender, or all of them together, sent too much in too short a time."""

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
    """The rows were not committed; another time they may be."""

    result, http_status, rpc_code, retry_after_s = "store_failed", 503, 14, RETRY_AFTER_S


class StoreRefusedError(IntakeError):
    """The store cannot keep these rows, now or later."""

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
"""How a message can end; `failed` is a defect of ours."""
