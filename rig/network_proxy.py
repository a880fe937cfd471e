"""A TCP proxy that delays, cuts, resets or stalls connections.

The proxy records how long it really delayed each chunk. On a busy machine, the real delay is longer
than the requested delay. Times are on the monotonic clock.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from struct import pack
from typing import Final, Literal, NamedTuple

_CHUNK_BYTES: Final = 65_536
_RESET: Final = pack("ii", 1, 0)
"""SO_LINGER with a time of zero. With this option, close() sends RST instead of FIN."""


class DelayedChunk(NamedTuple):
    """A chunk that the proxy forwarded, and its delay."""

    data: bytes
    delay_s: float


def first_events(down: Sequence[DelayedChunk]) -> list[DelayedChunk]:
    """For each response, the chunk with the first event. A new header starts a new response."""
    firsts, waiting = [], False
    for each in down:
        waiting |= each.data.startswith(b"HTTP/1.1")
        if waiting and b"data:" in each.data:
            firsts.append(each)
            waiting = False
    return firsts


@dataclass(slots=True)
class Disturbance:
    """How the proxy disturbs connections.

    Attributes:
        up_s: delay of bytes from the client to the server.
        down_s: delay of bytes from the server to the client.
        end: what happens after `after_bytes` bytes from the server. `nothing` has no effect, `cut`
            closes the connection, `reset` resets it, and `stall` pauses it for `stall_s`.
        up: the chunks that were forwarded to the server.
        down: the chunks that were forwarded to the client.
    """

    up_s: float = 0.0
    down_s: float = 0.0
    end: Literal["nothing", "cut", "reset", "stall"] = "nothing"
    after_bytes: int = 0
    stall_s: float = 3600.0
    up: list[DelayedChunk] = field(default_factory=list)
    down: list[DelayedChunk] = field(default_factory=list)


@asynccontextmanager
async def network_proxy(to_port: int, disturbance: Disturbance) -> AsyncIterator[int]:
    """Forward connections to another port. Yields the port on the loopback at which the proxy
    listens."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _connection(reader, writer, to_port, disturbance)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connection(
    from_client: asyncio.StreamReader,
    to_client: asyncio.StreamWriter,
    to_port: int,
    disturbance: Disturbance,
) -> None:
    from_server, to_server = await asyncio.open_connection("127.0.0.1", to_port)
    for writer in (to_client, to_server):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        up = asyncio.ensure_future(
            _pass_on(from_client, to_server, disturbance.up_s, Disturbance(down=disturbance.up))
        )
        down = asyncio.ensure_future(
            _pass_on(from_server, to_client, disturbance.down_s, disturbance)
        )
        try:
            await down
        finally:
            up.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await up
    finally:
        to_server.transport.abort()


async def _pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay_s: float,
    disturbance: Disturbance,
) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def receive() -> None:
        while data := await reader.read(_CHUNK_BYTES):
            waiting.put_nowait((loop.time() + delay_s, data))
        waiting.put_nowait((loop.time() + delay_s, b""))

    receiving = asyncio.ensure_future(receive())
    passed = 0
    try:
        while True:
            due, data = await waiting.get()
            if (wait_s := due - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            left = disturbance.after_bytes - passed
            if disturbance.end != "nothing" and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                if disturbance.end == "stall":
                    await asyncio.sleep(disturbance.stall_s)
                    writer.write(data[left:])
                    disturbance = Disturbance()
                    continue
                if disturbance.end == "reset":
                    await asyncio.sleep(0.05)  # leave the client time to read the forwarded bytes
                    given = writer.get_extra_info("socket")
                    given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort() if disturbance.end == "reset" else writer.close()
                return
            if not data:
                writer.close()
                return
            writer.write(data)
            disturbance.down.append(DelayedChunk(data, loop.time() - (due - delay_s)))
            await writer.drain()
            passed += len(data)
    finally:
        receiving.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await receiving
