"""One attempt to deliver: a request goes out, and what came back is judged.

Whoever answers is a stranger: an attempt ends in time however slowly they answer, reads
little, follows no redirect (the message and its keys are for the address that was configured),
and repeats nothing of what it says that we keep secret. Proxies are those of the environment
(HTTPS_PROXY, NO_PROXY), trusted certificates the system's (SSL_CERT_FILE).
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

from alerts.notify.channels import Channel, Post

CONNECT_S: Final = 5.0
READ_S: Final = 10.0
WHOLE_S: Final = 15.0
"""For all of it: the name, the connection, the last byte."""
MOST_BYTES: Final = 4_096
"""Of an answer."""
SHOWN: Final = 200
LONGEST_RETRY_AFTER_S: Final = 3_600.0


class Verdict(Enum):
    """What an answer means."""

    DELIVERED = auto()
    LATER = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `status` is None where nothing did; `said` is fit to be shown.

    `retry_after_s`: how long we are asked to wait. `final`: another attempt would meet the same.
    """

    status: int | None
    said: str
    retry_after_s: float | None = None
    final: bool = False

    @property
    def verdict(self) -> Verdict:
        """2xx is delivered; 408, 429, 5xx and silence may pass; anything else will not."""
        if self.final:
            return Verdict.REFUSED
        if self.status is None or self.status in (408, 429) or self.status >= 500:
            return Verdict.LATER
        return Verdict.DELIVERED if 200 <= self.status < 300 else Verdict.REFUSED

    def __str__(self) -> str:
        if self.status is None:
            return self.said
        return f"status {self.status}" + (f": {self.said}" if self.said else "")


class Sender:
    """Sends for one channel, one request at a time.

    Args:
        channel: where to.
        whole_s: how long an attempt may take.
    """

    def __init__(self, channel: Channel, whole_s: float = WHOLE_S) -> None:
        self._channel = channel
        self._whole_s = whole_s
        self._running: threading.Thread | None = None
        # At DEBUG it logs every path, which may be a token.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)

    def __call__(self, post: Post) -> Answer:
        """Send; never raises for what it meets."""
        # Sockets time out per read: one byte a second would hold us for ever, and looking up a
        # name has no time-out at all. So the attempt has a thread, which is left to itself when
        # it takes too long; the next attempt waits until that one is gone.
        if self._running is not None and self._running.is_alive():
            return Answer(None, "the attempt before is not over yet")
        answers: SimpleQueue[Answer] = SimpleQueue()
        self._running = threading.Thread(
            target=lambda: answers.put(_send(self._channel, post)),
            name=f"notify-{self._channel.name}-attempt",
            daemon=True,
        )
        self._running.start()
        try:
            return answers.get(timeout=self._whole_s)
        except Empty:
            return Answer(None, f"no whole answer within {self._whole_s:g} s")


def _send(channel: Channel, post: Post) -> Answer:
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
                body = response.read(MOST_BYTES)
            finally:
                response.close()
    except (exceptions.HTTPError, OSError, ValueError) as error:
        return Answer(None, _why(error))
    return Answer(
        response.status,
        _said(channel, response.status, body.decode("utf-8", "replace")),
        retry_after_s(response.headers.get("retry-after"), time.time),
    )


def _pool(url: str) -> urllib3.PoolManager:
    parts = urlsplit(url)
    timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(parts.netloc):
        return urllib3.PoolManager(timeout=timeout, retries=False)
    return urllib3.ProxyManager(proxy, timeout=timeout, retries=False)


def _why(error: Exception) -> str:
    """In words of our own: the libraries' hold the address."""
    match error:
        case exceptions.NameResolutionError():
            return "the name of its host is not known"
        case exceptions.ProxyError():
            return "the proxy does not let us through"
        case exceptions.NewConnectionError():
            return "it takes no connection"
        case exceptions.ConnectTimeoutError():
            return f"no connection within {CONNECT_S:g} s"
        case exceptions.SSLError():
            return "its certificate is not trusted, or it speaks no TLS"
        case exceptions.TimeoutError():
            return f"no answer within {READ_S:g} s"
        case exceptions.ProtocolError():
            return "it closed the connection, or speaks no HTTP"
    return f"it cannot be reached ({type(error).__name__})"


def _said(channel: Channel, status: int, body: str) -> str:
    """The beginning of an answer, without what we keep secret."""
    if 300 <= status < 400:
        return "a redirect, which is not followed: configure the address that it leads to"
    for secret in sorted(_told(channel), key=len, reverse=True):
        body = body.replace(secret, "***")
    words = " ".join("".join(c if c.isprintable() else " " for c in body).split())
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…"


def _told(channel: Channel) -> set[str]:
    """The secrets, and the parts of addresses that may be repeated alone or escaped."""
    parts = urlsplit(channel.url.reveal())
    told = {*channel.secrets, parts.path, parts.query}
    if channel.authorization is not None:
        told |= set(channel.authorization.reveal().split())
    told |= {piece for piece in parts.path.split("/") if len(piece) >= 6}
    return {shape for each in told for shape in (each, quote(each)) if len(shape) > 1}


def retry_after_s(value: str | None, clock: Callable[[], float]) -> float | None:
    """Seconds of a Retry-After header, which tells seconds or a date; at most an hour."""
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
