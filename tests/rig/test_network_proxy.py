import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from rig.network_proxy import Disturbance, network_proxy

BODY = b"0123456789" * 10


async def _through(disturbance: Disturbance, within_s: float = 5.0) -> tuple[bytes, float, str]:
    """Send one byte, and return the response, the time of its first byte and how it ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(BODY)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with network_proxy(server.sockets[0].getsockname()[1], disturbance) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        start, got, first_s, end = time.monotonic(), b"", 0.0, "closed"
        writer.write(b"?")
        try:
            async with asyncio.timeout(within_s):
                while data := await reader.read(7):
                    first_s = first_s or time.monotonic() - start
                    got += data
        except TimeoutError:
            end = "silent"
        except ConnectionResetError:
            end = "reset"
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    server.close()
    return got, first_s, end


@pytest.mark.parametrize(
    ("about", "got", "end"),
    [
        ({}, BODY, "closed"),
        ({"up_s": 0.03, "down_s": 0.05}, BODY, "closed"),
        ({"end": "cut", "after_bytes": 25}, BODY[:25], "closed"),
        ({"end": "reset", "after_bytes": 25}, BODY[:25], "reset"),
        ({"end": "stall", "after_bytes": 25}, BODY[:25], "silent"),
        ({"end": "stall", "after_bytes": 25, "stall_s": 0.1}, BODY, "closed"),
    ],
)
def test_a_connection_is_disturbed_as_configured(
    about: dict[str, Any], got: bytes, end: str
) -> None:
    disturbance = Disturbance(**about)
    received, first_s, ended = asyncio.run(_through(disturbance, 0.5))
    assert (received, ended) == (got, end)
    delay_s = disturbance.up_s + disturbance.down_s
    assert delay_s <= first_s < delay_s + 0.05
