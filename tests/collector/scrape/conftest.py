import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

Manner = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Stranger = Callable[[Manner], AbstractAsyncContextManager[str]]


@pytest.fixture
def stranger() -> Stranger:
    """Serve connections with a function, and return the URL of the server's /metrics."""

    @asynccontextmanager
    async def serve(manner: Manner) -> AsyncIterator[str]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                await manner(reader, writer)
                await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            server.close()

    return serve


def responding(body: bytes, status: str = "200 OK", *headers: str) -> Manner:
    async def manner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)

    return manner
