"""Reading an HTTP body to its end, decompressed, within a limit that holds against bombs."""

import zlib
from collections.abc import AsyncIterator

from collector.errors import MalformedError, TooLargeError, UnsupportedError

# zlib's window bits: 31 expects gzip's wrapper, 15 zlib's, which HTTP calls deflate.
_WINDOW_BITS = {"gzip": 31, "deflate": 15}


async def read_body(chunks: AsyncIterator[bytes], encoding: str, max_bytes: int) -> bytes:
    """The whole body.

    Args:
        chunks: as they arrive.
        encoding: the Content-Encoding header; empty for none.
        max_bytes: of the body, decompressed.

    Raises:
        UnsupportedError: another encoding than gzip, deflate or identity.
        TooLargeError: no more than `max_bytes` were ever held.
        MalformedError: the compressed stream is damaged or cut short.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return await _plain(chunks, max_bytes)
    if encoding not in _WINDOW_BITS:
        raise UnsupportedError(
            f"Content-Encoding {encoding!r:.80} is not spoken here: send gzip, deflate or identity"
        )
    return await _inflated(chunks, encoding, max_bytes)


async def _plain(chunks: AsyncIterator[bytes], max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > max_bytes:
            raise _too_large(max_bytes)
        body += chunk
    return bytes(body)


async def _inflated(chunks: AsyncIterator[bytes], encoding: str, max_bytes: int) -> bytes:
    body = bytearray()
    inflate = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        async for chunk in chunks:
            while chunk:
                if inflate.eof:  # gzip allows one stream after another
                    inflate = zlib.decompressobj(_WINDOW_BITS[encoding])
                body += inflate.decompress(chunk, max_bytes + 1 - len(body))
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
                chunk = inflate.unconsumed_tail or inflate.unused_data
    except zlib.error as error:
        raise MalformedError(f"the body is not {encoding}: {error}") from error
    if not inflate.eof:
        raise MalformedError(f"the {encoding} body is cut short")
    return bytes(body)


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body exceeds {max_bytes} bytes decompressed; send smaller batches")
