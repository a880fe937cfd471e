"""One OTLP message to a backend over HTTP."""

import ssl
from collections.abc import Mapping
from typing import Final

import urllib3

from exporters.forwarding.forwarder import Answer

TIMEOUT_S: Final = 10.0


class HttpPost:
    """Posts below a base address, once each.

    Args:
        url: the backend's, without /v1/….
        headers: of every message, such as a credential.
        context: whose certificates are trusted; None for the system's.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], context: ssl.SSLContext | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._pool = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(TIMEOUT_S), ssl_context=context
        )

    def __call__(self, path: str, body: bytes, content_type: str) -> Answer:
        """What came of it."""
        headers = {**self._headers, "Content-Type": content_type}
        try:
            # A redirect could carry the credential elsewhere: it is a refusal.
            answer = self._pool.request(
                "POST", f"{self._url}{path}", body=body, headers=headers, redirect=False
            )
        except urllib3.exceptions.HTTPError:
            return Answer(None)
        after = answer.headers.get("Retry-After", "")
        return Answer(answer.status, float(after) if after.isdecimal() else None)
