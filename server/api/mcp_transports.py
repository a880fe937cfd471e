"""Serve the MCP server over standard input and output, or over streamable HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from collector.listen.asgi_server import AsgiHost
from collector.listen.bearer_tokens import BearerGate
from collector.listen.connections import ConnectionLimits
from collector.listen.host_check import AllowedHosts, HostGate
from server.api.mcp_server import mcp_server
from server.api.readers import Readers
from server.api.worker_pool import WorkerPool
from server.endpoint_access import EndpointAccess

PATH: Final = "/mcp"
GRACE_S: Final = 5.0
MAX_BODY_BYTES: Final = 64 * 1024
"""Maximum message size. A tool call has up to 64 parameters of 1,000 characters."""


async def serve_stdio(pool: WorkerPool) -> None:
    """Answer the parent process until it closes the standard input."""
    server = mcp_server(pool)
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await pool.close()


class McpHost:
    """The MCP server over streamable HTTP, at `PATH`.

    It has no sessions, because abandoned sessions would use memory. Port 0 selects a free port.
    """

    def __init__(self, pool: WorkerPool, host: str, port: int, access: EndpointAccess) -> None:
        self._pool = pool
        server = mcp_server(pool, Readers(access.roles))
        # `HostGate` checks Host and Origin, so the SDK's own check is disabled.
        app: ASGIApp = server.streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            max_request_body_size=MAX_BODY_BYTES,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._sessions = server.session_manager
        if access.tokens is not None:
            app = BearerGate(app, access.tokens, role_paths=PATH)
        self._http = AsgiHost(
            HostGate(app, access.hosts or AllowedHosts()),
            host=host,
            port=port,
            option="--port",
            tls=access.tls,
            limits=ConnectionLimits(connections=64, per_peer=16),
        )

    @property
    def port(self) -> int:
        """The port in use."""
        return self._http.port

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve until the context ends.

        Raises:
            ListenError: the port is not available.
        """
        # Start the server before `sessions.run`, because `sessions.run` uses a task group, which
        # would wrap a ListenError in an exception group.
        await self._http.start()
        async with self._sessions.run():
            try:
                yield
            finally:
                await self._pool.close()
                await self._http.stop(GRACE_S)
