"""An HTTP body: read as it arrives, and decompressed within limits that hold against bombs."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Final

from collector.errors import MalformedError, TooLargeError, UnsupportedError
from collector.limits.message_memory import Room

BODY_S: Final = 30.0
"""The longest that a whole body may take. Exporters give up after 10 s by default
(OTEL_EXPORTER_OTLP_TIMEOUT). A body of 16 MiB arrives in 30 s at 4.5 Mbit/s."""
STALL_S: Final = 5.0
"""The longest pause between two bytes. Retransmission after a lost packet takes a second or two."""
MAX_MEMBERS: Final = 1024
"""Of a gzip body. Exporters send one; bgzip makes one of 64 KiB, so 256 of 16 MiB. A member can be
empty, so that a million of them hold nothing."""

_BLOCK_BYTES: Final = 64 * 1024

# zlib's window bits: 31 expects gzip's wrapper, 15 zlib's, which HTTP calls deflate.
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}


def encoding_of(header: str) -> str:
    """A Content-Encoding header as one of "", "gzip" and "deflate".

    Raises:
        UnsupportedError: another encoding.
    """
    encoding = header.strip().lower()
    if encoding in ("", "identity"):
        return ""
    if encoding not in _WINDOW_BITS:
        raise UnsupportedError(
            f"Content-Encoding {encoding!r:.80} is not spoken here: send gzip, deflate or identity"
        )
    return encoding


async def read_body(
    chunks: AsyncIterator[bytes], max_bytes: int, room: Room, timeout: asyncio.Timeout
) -> bytes:
    """The whole body, as it was sent.

    Args:
        chunks: as they arrive.
        max_bytes: of the body.
        room: each chunk is reserved there before it is kept.
        timeout: is running; is moved up to when the next chunk is due.

    Raises:
        TooLargeError: no more than `max_bytes` were ever held.
        BusyError: there is no room for more.
    """
    loop = asyncio.get_running_loop()
    end = timeout.when() or loop.time() + BODY_S
    body = bytearray()
    timeout.reschedule(min(end, loop.time() + STALL_S))
    async for chunk in chunks:
        if len(body) + len(chunk) > max_bytes:
            raise TooLargeError(f"the body exceeds {max_bytes} bytes; send smaller batches")
        room.grow(len(chunk))
        body += chunk
        timeout.reschedule(min(end, loop.time() + STALL_S))
    return bytes(body)


def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """A body decompressed; not for an event loop.

    Args:
        body: as it was sent.
        encoding: gzip or deflate.
        max_bytes: of the result.

    Raises:
        TooLargeError: no more than `max_bytes` were ever held, or too many gzip members.
        MalformedError: the compressed stream is damaged or cut short.
    """
    found = bytearray()
    members = 1
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        # In blocks, for what a member leaves over is copied.
        for start in range(0, len(body), _BLOCK_BYTES):
            left = body[start : start + _BLOCK_BYTES]
            while left:
                if stream.eof:  # gzip allows one member after another
                    members += 1
                    if members > MAX_MEMBERS:
                        raise TooLargeError(
                            f"more than {MAX_MEMBERS} {encoding} members in a body; send one"
                        )
                    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
                found += stream.decompress(left, max_bytes + 1 - len(found))
                if len(found) > max_bytes:
                    raise TooLargeError(
                        f"the body exceeds {max_bytes} bytes decompressed; send smaller batches"
                    )
                left = stream.unconsumed_tail or stream.unused_data
    except zlib.error as error:
        raise MalformedError(f"the body is not {encoding}: {error}") from error
    if not stream.eof:
        raise MalformedError(f"the {encoding} body is cut short")
    return bytes(found)
