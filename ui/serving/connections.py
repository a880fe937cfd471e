"""Limit the number of the explorer's connections, and the time to receive the head of a request.

uvicorn has no such limits.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from ui.serving.routes import MAX_OPEN

MAX_CONNECTIONS: Final = 6 * MAX_OPEN
"""Further connections are closed. A browser opens up to six connections per host. A process may
usually open 1,024 files."""
HEAD_S: Final = 20.0
"""Seconds to receive the head of a request, as in Apache's mod_reqtimeout (`RequestReadTimeout
header=20`)."""


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with two limits: the number of connections, and the time to send a
    request's head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection unless the limit is reached."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(HEAD_S, self._look, None)

    def _look(self, before: Any) -> None:
        if self.transport.is_closing() or self not in self.connections:
            return  # it is closed, or is a WebSocket
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy and self.cycle is before:
            self.transport.close()
            return
        self.loop.call_later(HEAD_S, self._look, self.cycle)
