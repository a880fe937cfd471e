import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from probe.budget import ProbeBudget
from probe.plan import DailyLimits, Endpoint
from probe.prices import ProbeTokens
from probe.run_probe import Due, Prober
from telemetry.probes import Probe
from tests.probe.recorded_shapes import Part

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def unpriced(endpoint: Endpoint, tokens: ProbeTokens) -> float | None:
    return None


@dataclass
class Script:
    parts: Sequence[Part] = ()
    status: str = "200 OK"
    headers: str = ""
    end: str = "whole"
    """How the response ends: `whole`, `cut` (incomplete body), `reset` (RST) or `silent` (open)."""
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = asked.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append((first.split()[1], headers, body))
        kind = "" if "content-type" in self.headers else "content-type: text/event-stream\r\n"
        head = f"HTTP/1.1 {self.status}\r\n{kind}{self.headers}transfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for part in self.parts:
            await asyncio.sleep(part.after_s)
            writer.write(b"%x\r\n%s\r\n" % (len(part.data), part.data))
            await writer.drain()
        if self.end == "whole":
            writer.write(b"0\r\n\r\n")
        elif self.end == "silent":
            await asyncio.sleep(60)
        elif self.end == "reset":
            import socket
            from struct import pack

            await asyncio.sleep(0.05)
            given = writer.get_extra_info("socket")
            given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            writer.transport.abort()
            return
        writer.close()


@asynccontextmanager
async def listening(
    handler: Handler, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    handling: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            handling.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(handle, host, 0, ssl=context, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(handling):
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint(
        name="chat",
        kind="openai-chat",
        url="http://127.0.0.1:1",
        model="tiny",
        max_tokens=16,
        prompt_tokens=30,
    )


@pytest.fixture
def prober() -> Prober:
    return Prober(
        "eu-west",
        ProbeBudget(DailyLimits(), unpriced, None),
        unpriced,
        ssl.create_default_context(),
        {"KEY": "sk-secret-1234"},
    )


@pytest.fixture
def probe_of(prober: Prober, endpoint: Endpoint) -> Callable[..., tuple[Probe, Script]]:
    def probe(script: Script, within_s: float = 5.0, **about: Any) -> tuple[Probe, Script]:
        async def run() -> Probe:
            async with listening(script) as port:
                asked = replace(endpoint, url=f"http://127.0.0.1:{port}", **about)
                now = asyncio.get_running_loop().time()
                return await prober.send(asked, "prompt", False, Due(now, 10**18, now + within_s))

        return asyncio.run(run()), script

    return probe


def body_of(script: Script) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(script.asked[0][2])
    return found
