"""Check with one HTTP request whether a server responds.

The server is not trusted. So the total time and the number of bytes are limited. No proxy is used,
and no redirect is followed.
"""

import http.client
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from server.client_access import OPEN, ClientAccess
from telemetry.printable import printable

TIMEOUT_S = 2.0
MAX_BYTES = 1_000_000
WIDEST_WHY = 200


@dataclass(frozen=True, slots=True)
class HttpResult:
    """A response. If the request failed, the status is None and `reason` contains the error."""

    status: int | None
    reason: str
    body: str = ""

    @property
    def ok(self) -> bool:
        """Whether the status is from 200 to 299."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def why(self) -> str:
        """The reason for the failure, without characters that control a terminal."""
        words = self.reason if self.status is None else f"status {self.status} {self.reason}"
        return printable(words.strip(), WIDEST_WHY)


def get(
    url: str,
    timeout_s: float = TIMEOUT_S,
    access: ClientAccess = OPEN,
    *,
    max_bytes: int | None = None,
) -> HttpResult:
    """Send a GET request.

    Errors are not raised: the result contains them. `timeout_s` is the time limit of the whole
    request, including the name lookup.
    """
    return _in_time(url, None, access.headers(), timeout_s, access, max_bytes)


def post(
    url: str,
    body: bytes,
    content_type: str,
    timeout_s: float = TIMEOUT_S,
    access: ClientAccess = OPEN,
) -> HttpResult:
    """Send a POST request. Errors and the time limit are the same as for `get`."""
    return _in_time(url, body, {"Content-Type": content_type} | access.headers(), timeout_s, access)


def _in_time(
    url: str,
    body: bytes | None,
    headers: dict[str, str],
    timeout_s: float,
    access: ClientAccess,
    max_bytes: int | None = None,
) -> HttpResult:
    # The request runs in a thread, which is abandoned after the time limit. A socket's timeout
    # applies only to each read, and a name lookup has no timeout.
    answers: SimpleQueue[HttpResult] = SimpleQueue()
    threading.Thread(
        target=lambda: answers.put(
            _ask(url, body, headers, timeout_s, access, max_bytes or MAX_BYTES)
        ),
        daemon=True,
    ).start()
    try:
        return answers.get(timeout=timeout_s)
    except Empty:
        return HttpResult(None, f"no response within {timeout_s:g} s")


def _ask(
    url: str,
    body: bytes | None,
    headers: dict[str, str],
    timeout_s: float,
    access: ClientAccess,
    max_bytes: int,
) -> HttpResult:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme not in ("http", "https"):
            raise ValueError(parts.scheme)
        connection = (
            http.client.HTTPSConnection(host, port, timeout=timeout_s, context=access.context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=timeout_s)
        )
        try:
            connection.request(
                "GET" if body is None else "POST",
                parts.path or "/",
                body,
                {"Connection": "close"} | headers,
            )
            response = connection.getresponse()
            moved = response.getheader("location") if 300 <= response.status < 400 else None
            return HttpResult(
                response.status,
                f"moved to {moved}" if moved else response.reason,
                response.read(max_bytes).decode("utf-8", "replace"),
            )
        finally:
            connection.close()
    except TimeoutError:
        return HttpResult(None, f"no response within {timeout_s:g} s")
    except OSError as error:
        return HttpResult(None, error.strerror or str(error) or type(error).__name__)
    except http.client.HTTPException as error:
        return HttpResult(None, f"the response is not HTTP ({type(error).__name__})")
    except ValueError as error:  # an invalid address or host name
        return HttpResult(None, f"not an HTTP address: {error}")
    except Exception as error:  # without this, a failed thread would look like a slow server
        return HttpResult(None, f"the request failed: {type(error).__name__}: {error}")
