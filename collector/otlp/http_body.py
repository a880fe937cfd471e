"""Read HTTP bodies as they arrive, and decompress them with limits against compression bombs."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Final

from collector.errors import MalformedError, TooLargeError, UnsupportedError
from collector.limits.message_memory import MemoryReservation

BODY_S: Final = 30.0
"""Time limit for a whole body. At 4.5 Mbit/s, 16 MiB arrive in this time."""
STALL_S: Final = 5.0
"""Time limit without new bytes. Retransmission after a lost packet takes one or two seconds."""
MAX_MEMBERS: Final = 1024
"""Maximum number of gzip members in a body. A small body could contain a million members. bgzip
writes 256 members for 16 MiB."""

_BLOCK_BYTES: Final = 64 * 1024

# zlib's window bits: 31 for gzip, 15 for zlib, which HTTP calls deflate.
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}


def encoding_of(header: str) -> str:
    """The encoding in a Content-Encoding header: "", "gzip" or "deflate".

    Raises:
        UnsupportedError: the header names a different encoding.
    """
    encoding = header.strip().lower()
    if encoding in ("", "identity"):
        return ""
    if encoding not in _WINDOW_BITS:
        raise UnsupportedError(
            f"Content-Encoding {encoding!r:.80} is not supported: send gzip, deflate or identity"
        )
    return encoding


async def read_body(
    chunks: AsyncIterator[bytes],
    max_bytes: int,
    reservation: MemoryReservation,
    timeout: asyncio.Timeout,
) -> bytes:
    """Return the whole body as it was sent.

    Args:
        reservation: the reserved memory. It is enlarged before each chunk is stored.
        timeout: the current time limit, which each chunk extends.

    Raises:
        TooLargeError: the body exceeds `max_bytes`.
        IntakeBusyError: not enough memory is left.
    """
    loop = asyncio.get_running_loop()
    end = timeout.when() or loop.time() + BODY_S
    body = bytearray()
    timeout.reschedule(min(end, loop.time() + STALL_S))
    async for chunk in chunks:
        if len(body) + len(chunk) > max_bytes:
            raise TooLargeError(f"the body exceeds {max_bytes} bytes; send smaller batches")
        reservation.grow(len(chunk))
        body += chunk
        timeout.reschedule(min(end, loop.time() + STALL_S))
    return bytes(body)


def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a decompressed body. Do not call it on an event loop, because it takes long.

    Raises:
        TooLargeError: the result exceeds `max_bytes`, or there are too many gzip members.
        MalformedError: the compressed stream is malformed or truncated.
    """
    found = bytearray()
    members = 1
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        # Decompress in blocks, because zlib copies all bytes that follow a gzip member.
        for start in range(0, len(body), _BLOCK_BYTES):
            left = body[start : start + _BLOCK_BYTES]
            while left:
                if stream.eof:
                    members += 1
                    if members > MAX_MEMBERS:
                        raise TooLargeError(
                            f"more than {MAX_MEMBERS} {encoding} members in a body; send one"
                        )
                    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
                found += stream.decompress(left, max_bytes + 1 - len(found))
                if len(found) > max_bytes:
                    raise TooLargeError(
                        f"the body exceeds {max_bytes} bytes after decompression; send smaller"
                        f" batches"
                    )
                left = stream.unconsumed_tail or stream.unused_data
    except zlib.error as error:
        raise MalformedError(f"the body is not {encoding}: {error}") from error
    if not stream.eof:
        raise MalformedError(f"the {encoding} body is truncated")
    return bytes(found)
