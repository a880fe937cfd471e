"""Send one OTLP message over HTTP, with the system's certificates and no proxy."""

import ssl
from collections.abc import Mapping
from typing import Final

import urllib3
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict, http_failure

TIMEOUT_S: Final = 10.0


class HttpPost:
    """Sends messages to a backend.

    Args:
        url: the base address, without /v1/….
        context: the trusted certificates. If None, the system's certificates are trusted.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], context: ssl.SSLContext | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._pool = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(TIMEOUT_S), ssl_context=context
        )

    def __call__(self, path: str, body: bytes, content_type: str) -> ExportResponse:
        """Try to send a message once."""
        headers = {**self._headers, "Content-Type": content_type}
        try:
            # A redirect could send the credential to a different address.
            answer = self._pool.request(
                "POST", f"{self._url}{path}", body=body, headers=headers, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            return ExportResponse(ExportVerdict.UNREACHABLE, type(error).__name__)
        if 200 <= answer.status < 300:
            return ExportResponse(ExportVerdict.ACCEPTED)
        return http_failure(answer.status, answer.headers, answer.reason or "")
