"""Connections to the explorer: how many, and how long each may take for a request.

uvicorn accepts any number, and waits for the end of a request's head for ever.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from ui.serving.routes import MOST_OPEN

MOST_CONNECTIONS: Final = 6 * MOST_OPEN
"""A browser opens at most six to a host, and reuses them. Below the usual limit of 1,024 open
files; further ones are closed at once. A page's WebSocket is counted by `ui.serving.routes`."""
HEAD_S: Final = 20.0
"""For the head of a request, of which the next one comes within uvicorn's 5 s or not at all. As
Apache's mod_reqtimeout has it (`RequestReadTimeout header=20`)."""


class TimedProtocol(H11Protocol):
    """uvicorn's, which closes connections beyond the limit and those that send no request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(HEAD_S, self._look, None)

    def _look(self, before: Any) -> None:
        """Close a connection on which no request has begun since the last look."""
        if self.transport.is_closing() or self not in self.connections:
            return  # it has ended, or has become a WebSocket
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy and self.cycle is before:
            self.transport.close()
            return
        self.loop.call_later(HEAD_S, self._look, self.cycle)
