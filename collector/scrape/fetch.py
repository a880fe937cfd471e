"""One answer of a stranger's: in time, of a size, from the address that was given.

No proxy, no redirect, no compression (a small answer must not become a large one); the time
is for all of it, so that a byte a second ends as a silent one does.
"""

import asyncio
from typing import Final

import httpx

from collector.scrape.reasons import Reason, ScrapeError

MOST_BYTES: Final = 8 * 2**20
"""A hundred times what a vLLM tells."""

_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
    "User-Agent": "tailspan",
}


def http_client() -> httpx.AsyncClient:
    """A client for all targets."""
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # `fetch` bounds the whole
        headers=_HEADERS,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
    )


async def fetch(client: httpx.AsyncClient, url: str, timeout_s: float) -> bytes:
    """The body of a 200.

    Raises:
        ScrapeError: anything else.
    """
    try:
        async with asyncio.timeout(timeout_s), client.stream("GET", url) as answer:
            if answer.is_redirect:
                raise ScrapeError(Reason.REDIRECT)
            if answer.status_code != 200:
                raise ScrapeError(Reason.HTTP_STATUS)
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise ScrapeError(Reason.MALFORMED)
            body = bytearray()
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise ScrapeError(Reason.TOO_LARGE)
            return bytes(body)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ScrapeError(Reason.TIMEOUT) from error
    except (httpx.ProtocolError, httpx.DecodingError) as error:
        raise ScrapeError(Reason.MALFORMED) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise ScrapeError(Reason.UNREACHABLE) from error
