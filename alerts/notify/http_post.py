"""Send a message over HTTP, in one attempt.

Receivers are not trusted. An attempt has a total time-out and reads only the beginning of a
response. It follows no redirect, because only the configured address may receive the message and
the keys. Secrets are removed from the response. HTTPS_PROXY and NO_PROXY configure the proxies.
Certificates come from the system or from SSL_CERT_FILE.
"""

import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Final
from urllib.parse import quote, urlsplit

import urllib3
from urllib3 import exceptions
from urllib3.util import make_headers, parse_url

from alerts.notify.channels import Channel, ChannelPost

CONNECT_S: Final = 5.0
READ_S: Final = 10.0
WHOLE_S: Final = 15.0
"""Time-out of an attempt, from name resolution to the last byte of the response."""
MAX_BYTES: Final = 4_096
SHOWN: Final = 200
LONGEST_RETRY_AFTER_S: Final = 3_600.0


class DeliveryVerdict(Enum):
    """Whether a message was delivered, should be retried, or was refused."""

    DELIVERED = auto()
    LATER = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class ChannelResponse:
    """The response to an attempt.

    Args:
        status: None if there was no response.
        text: the beginning of the response without secrets, or why there is none.
        retry_after_s: the pause that the receiver asks for, or None.
        final: whether a retry is useless.
    """

    status: int | None
    text: str
    retry_after_s: float | None = None
    final: bool = False

    @property
    def verdict(self) -> DeliveryVerdict:
        """The verdict. A 2xx status means delivered. A status of 408, 429 or 5xx, or no response,
        means retry. Any other status means refused."""
        if self.final:
            return DeliveryVerdict.REFUSED
        if self.status is None or self.status in (408, 429) or self.status >= 500:
            return DeliveryVerdict.LATER
        return DeliveryVerdict.DELIVERED if 200 <= self.status < 300 else DeliveryVerdict.REFUSED

    def __str__(self) -> str:
        if self.status is None:
            return self.text
        return f"status {self.status}" + (f": {self.text}" if self.text else "")


class ChannelPoster:
    """Sends one request at a time. `whole_s` is the total time-out of an attempt in seconds."""

    def __init__(self, channel: Channel, whole_s: float = WHOLE_S) -> None:
        self._channel = channel
        self._whole_s = whole_s
        self._running: threading.Thread | None = None
        # At level DEBUG, urllib3 logs every path, which may contain a token.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)

    def __call__(self, post: ChannelPost) -> ChannelResponse:
        """Send one request; failures are returned, not raised."""
        # A socket's time-out applies to a single read, and name resolution has no time-out. So the
        # attempt runs in a thread, which is abandoned after the total time-out. Until this thread
        # has ended, further attempts fail.
        if self._running is not None and self._running.is_alive():
            return ChannelResponse(None, "the previous attempt has not ended yet")
        answers: SimpleQueue[ChannelResponse] = SimpleQueue()
        self._running = threading.Thread(
            target=lambda: answers.put(_send(self._channel, post)),
            name=f"notify-{self._channel.name}-attempt",
            daemon=True,
        )
        self._running.start()
        try:
            return answers.get(timeout=self._whole_s)
        except Empty:
            return ChannelResponse(None, f"no complete response within {self._whole_s:g} s")


def _send(channel: Channel, post: ChannelPost) -> ChannelResponse:
    url = channel.url.reveal().rstrip("/") + post.path if post.path else channel.url.reveal()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "tailspan",
        **post.headers,
    }
    if channel.authorization is not None:
        headers["Authorization"] = channel.authorization.reveal()
    try:
        with _pool(url) as pool:
            response = pool.request(
                "POST",
                url,
                body=post.body,
                headers=headers,
                redirect=False,
                preload_content=False,
            )
            try:
                body = response.read(MAX_BYTES)
            finally:
                response.close()
    except (exceptions.HTTPError, OSError, ValueError) as error:
        return ChannelResponse(None, _error_reason(error))
    return ChannelResponse(
        response.status,
        _visible_answer(channel, response.status, body.decode("utf-8", "replace")),
        retry_after_s(response.headers.get("retry-after"), time.time),
    )


def _pool(url: str) -> urllib3.PoolManager:
    parts = urlsplit(url)
    timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(parts.netloc):
        return urllib3.PoolManager(timeout=timeout, retries=False)
    # urllib3 ignores the user and password in the address.
    user_password = parse_url(proxy).auth_decoded_joined
    headers = make_headers(proxy_basic_auth=user_password, proxy_basic_auth_encoding="utf-8")
    return urllib3.ProxyManager(proxy, proxy_headers=headers, timeout=timeout, retries=False)


def _error_reason(error: Exception) -> str:
    """The reason for an error. The libraries' own messages contain the address."""
    match error:
        case exceptions.NameResolutionError():
            return "the host name cannot be resolved"
        case exceptions.ProxyError():
            return "the proxy refuses the connection"
        case exceptions.NewConnectionError():
            return "the connection is refused"
        case exceptions.ConnectTimeoutError():
            return f"no connection within {CONNECT_S:g} s"
        case exceptions.SSLError():
            return "the receiver's certificate is not trusted, or the receiver does not use TLS"
        case exceptions.TimeoutError():
            return f"no response within {READ_S:g} s"
        case exceptions.ProtocolError():
            return "the receiver closed the connection, or does not use HTTP"
    return f"the receiver cannot be reached ({type(error).__name__})"


def _visible_answer(channel: Channel, status: int, body: str) -> str:
    if 300 <= status < 400:
        return "a redirect, which is not followed: configure its target address instead"
    for secret in sorted(_confidential(channel), key=len, reverse=True):
        body = body.replace(secret, "***")
    words = " ".join("".join(c if c.isprintable() else " " for c in body).split())
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…"


def _confidential(channel: Channel) -> set[str]:
    """Secrets, their escaped forms, and parts of addresses."""
    parts = urlsplit(channel.url.reveal())
    texts = {*channel.secrets, parts.path, parts.query}
    if channel.authorization is not None:
        texts |= set(channel.authorization.reveal().split())
    texts |= {piece for piece in parts.path.split("/") if len(piece) >= 6}
    return {shape for each in texts for shape in (each, quote(each)) if len(shape) > 1}


def retry_after_s(value: str | None, clock: Callable[[], float]) -> float | None:
    """The seconds of a Retry-After header, at most an hour, or None if it is invalid."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), LONGEST_RETRY_AFTER_S)
    try:
        until = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(until - clock(), 0.0), LONGEST_RETRY_AFTER_S)
