"""Fetch a target's response, with limits on time and size.

It uses no proxy and follows no redirect. It accepts no compression, because a small response could
decompress to a large response.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import httpx

from collector.errors import SecurityError
from collector.scrape.credentials import OPEN, TargetCredentials
from collector.scrape.failure_reasons import ScrapeError, ScrapeFailureReason

MAX_BYTES: Final = 8 * 2**20
"""Maximum size of a response in bytes. It is a hundred times the size of vLLM's response."""

_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
    "User-Agent": "tailspan",
}


def http_client(access: TargetCredentials = OPEN) -> httpx.AsyncClient:
    """An HTTP client for all targets with the same certificates.

    Raises:
        SecurityError: the certificates are not usable.
    """
    return httpx.AsyncClient(
        verify=access.context() or True,
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # `fetch` limits the whole request
        headers=_HEADERS,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
    )


class Clients:
    """One HTTP client per set of certificates."""

    def __init__(self) -> None:
        self._clients: dict[tuple[Path | None, ...], httpx.AsyncClient] = {}

    def of(self, access: TargetCredentials) -> httpx.AsyncClient:
        """The client for these credentials. Its new connections use the current certificates.

        Raises:
            ScrapeError: the certificates are not usable.
        """
        trust = (access.ca_file, access.cert_file, access.key_file)
        try:
            if trust not in self._clients:
                self._clients[trust] = http_client(access)
            else:
                access.context()
        except SecurityError as error:
            raise ScrapeError(ScrapeFailureReason.TLS, str(error)) from error
        return self._clients[trust]

    async def aclose(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            await client.aclose()


async def fetch(
    client: httpx.AsyncClient, url: str, timeout_s: float, access: TargetCredentials = OPEN
) -> bytes:
    """Return the body of a response with status 200.

    Raises:
        ScrapeError: the request failed, or the response has another status.
    """
    extensions = {"sni_hostname": access.server_name} if access.server_name else {}
    try:
        async with (
            asyncio.timeout(timeout_s),
            client.stream("GET", url, headers=access.headers(), extensions=extensions) as answer,
        ):
            if answer.is_redirect:
                raise ScrapeError(ScrapeFailureReason.REDIRECT)
            if answer.status_code in (401, 403):
                raise ScrapeError(ScrapeFailureReason.UNAUTHORISED, str(answer.status_code))
            if answer.status_code != 200:
                raise ScrapeError(ScrapeFailureReason.HTTP_STATUS, str(answer.status_code))
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise ScrapeError(ScrapeFailureReason.MALFORMED)
            body = bytearray()
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ScrapeError(ScrapeFailureReason.TOO_LARGE)
            return bytes(body)
    except SecurityError as error:
        raise ScrapeError(ScrapeFailureReason.NO_TOKEN, str(error)) from error
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ScrapeError(ScrapeFailureReason.TIMEOUT) from error
    except (httpx.ProtocolError, httpx.DecodingError) as error:
        raise ScrapeError(ScrapeFailureReason.MALFORMED) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        if (tls_error := _tls_error(error)) is not None:
            why = getattr(tls_error, "verify_message", "") or tls_error.reason or "no TLS"
            raise ScrapeError(ScrapeFailureReason.TLS, why) from error
        raise ScrapeError(ScrapeFailureReason.UNREACHABLE) from error


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
