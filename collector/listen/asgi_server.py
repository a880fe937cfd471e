"""Serve an ASGI application on its own port, inside a running event loop.

The port is bound before uvicorn starts, because uvicorn's own error message does not name the
option to change. Connections are limited, and uvicorn's signal handlers are disabled.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from collector.errors import ListenError
from collector.listen.connections import Acceptor, Connection, ConnectionLimits
from collector.listen.http_timeouts import TimedH11
from collector.listen.log_rate_limit import limit_logs
from collector.listen.tls import Tls

_DATE_S = 1.0
"""Interval at which uvicorn's Date header is updated."""
_CLOSING_S = 0.01
"""Interval at which a stopping server checks whether its connections are closed."""

_log = logging.getLogger(__name__)


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens on the address.

    Args:
        option: the command-line option that sets the port, for the error message.

    Raises:
        ListenError: the port is in use or forbidden, or the address does not exist.
    """
    if not 0 <= port <= 65_535:
        raise ListenError(f"{option} must be a port from 0 to 65535, not {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken by another program" if taken else error.strerror or str(error)
        raise ListenError(
            f"cannot listen on {host} port {port}: {why}; choose another with {option}"
        ) from error
    # Accepted sockets inherit this option, because asyncio does not set it. Without it, every
    # response waits 40 ms for the client's delayed ACK.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


class AsgiHost:
    """Serves one application until stopped.

    Args:
        option: the command-line option that sets the port, for error messages.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        option: str,
        tls: Tls | None = None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._app = app
        self._limits = limits
        self._host = host
        self._option = option
        self._tls = tls
        self._server: _LimitedServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Start to listen. Afterwards, `port` is the port in use."""
        bound = listen(self._host, self.port, self._option)
        self.port = bound.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,  # X-Forwarded-For would let a sender choose its address
            http=TimedH11,
            timeout_keep_alive=round(self._limits.idle_s),
            **(self._tls.uvicorn_settings() if self._tls else {}),
        )
        limit_logs()
        self._server = _LimitedServer(config, self._limits)
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))

    @property
    def serving(self) -> bool:
        """Whether the server runs."""
        return self._serving is not None and not self._serving.done()

    async def stop(self, grace_s: float) -> None:
        """Accept no new connections, and wait up to `grace_s` for current requests."""
        if self._server is None or self._serving is None:
            return
        # uvicorn reads this setting (whole seconds) when the shutdown begins.
        self._server.config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.end()
        await self._serving
        self._server = self._serving = None


class _LimitedServer(uvicorn.Server):
    """A uvicorn server with a connection limit and without signal handlers. It stops without delay:
    uvicorn's own loops check only every 0.1 s whether to stop."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop the server. `serve` returns when the current requests have ended."""
        self.should_exit = True
        self._ending.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections within the limits."""
        await self.lifespan.startup()

        def protocol(connection: Connection) -> TimedH11:
            return TimedH11(
                connection,
                self._limits,
                acceptor.closed,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        assert sockets, "AsgiHost.start passes one"
        listening = sockets[0]
        acceptor = Acceptor(listening, protocol, self._limits, self.config.ssl)
        # When uvicorn stops, it closes its servers and waits for them.
        self.servers = [cast(asyncio.Server, acceptor)]
        self.started = True

    async def main_loop(self) -> None:
        """Serve until `end` is called."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle connections, and wait up to `timeout_graceful_shutdown` for current
        requests."""
        for server in self.servers:
            server.close()
        for bound in sockets or []:
            bound.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:
                    await asyncio.sleep(_CLOSING_S)
        except TimeoutError:
            _log.warning("cancelled %d requests that did not end in time", len(state.tasks))
            for task in state.tasks:
                task.cancel("the server stops")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield
