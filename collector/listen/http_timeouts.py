"""Time limits for uvicorn's HTTP/1.1 protocol.

uvicorn limits only the time between requests. This protocol also closes a connection if the client
does one of the following:
- It sends no request.
- It sends only a part of a request's head.
- It sends a body in tiny chunks.
- It does not read the response.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from collector.listen.connections import Connection, ConnectionLimits

MAX_HEAD_BYTES: Final = 16 * 1024
"""Maximum size of a request's head; nginx and Apache allow 8 KiB for one line."""
FREE_CHUNKS: Final = 1024
CHUNK_BYTES: Final = 256
"""Minimum average size of a body's chunks. The first 1,024 chunks may be smaller. h11 takes about
20 µs per chunk, so 16 MiB in chunks of one byte would take minutes."""


class TimedH11(H11Protocol):
    """uvicorn's protocol for one HTTP/1.1 connection, with time limits.

    Args:
        given: the arguments of uvicorn's own protocol.
    """

    def __init__(
        self,
        connection: Connection,
        limits: ConnectionLimits,
        closed: Callable[[Connection], None],
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self.conn = _CountedChunks(self._abort)
        self._waited_since = time.monotonic()
        self._connection = connection
        self._limits = limits
        self._closed = closed
        self._head: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None

    @property
    def waits_since(self) -> float | None:
        """See `OpenConnection`."""
        waits = self._write is not None or not self._answering
        return self._waited_since if waits else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the head of the first request."""
        super().connection_made(transport)
        # Start the write timer as soon as more than one byte is unsent. With the default limit of
        # 64 KiB, a connection that is being closed may never close. With a limit of 0, asyncio's
        # TLS transport pauses writing permanently.
        transport.set_write_buffer_limits(high=1)
        self._connection.held = self
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._closed(self._connection)

    def data_received(self, data: bytes) -> None:
        """Pass the data to uvicorn, and start or stop the timer for a head."""
        super().data_received(data)
        if self._answering:
            if self._head is not None:
                self._head.cancel()
                self._head = None
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        """Start the time limit for the next request."""
        self._waited_since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start the write timer, because the client reads more slowly than the server writes."""
        super().pause_writing()
        if self._write is None:
            self._waited_since = time.monotonic()
            self._write = self.loop.call_later(self._limits.write_s, self._abort)

    def resume_writing(self) -> None:
        """Stop the write timer."""
        super().resume_writing()
        self._waited_since = time.monotonic()
        if self._write is not None:
            self._write.cancel()
            self._write = None

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the client has not read the last response."""
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            super().timeout_keep_alive_handler()

    def close_at_once(self) -> None:
        """Close the connection to make room for a new one."""
        self._abort()

    def _unsupported_upgrade_warning(self) -> None:
        pass  # a client could fill the log

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._limits.head_s, self._abort)

    def _abort(self) -> None:
        self._cancel()
        self.transport.abort()

    def _cancel(self) -> None:
        for timer in (self._head, self._write):
            if timer is not None:
                timer.cancel()
        self._head = self._write = None


class _CountedChunks(h11.Connection):
    def __init__(self, give_up: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._give_up = give_up
        self._chunks = self._bytes = 0

    def start_next_cycle(self) -> None:
        """Reset the count of chunks."""
        super().start_next_cycle()
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        """Return h11's next event, or abort the connection after too many small chunks."""
        event = super().next_event()
        if type(event) is h11.Data:
            self._chunks += 1
            self._bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._bytes // CHUNK_BYTES:
                self._give_up()
                return h11.NEED_DATA
        return event
