import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from collector.listen.asgi_server import AsgiHost


class SlowApp:
    """An application that responds after `release` is set."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})


async def _stopping(
    app: SlowApp, client: httpx.AsyncClient
) -> tuple[asyncio.Task[httpx.Response], asyncio.Task[None]]:
    """Send a request to a server, and begin to stop the server during the request."""
    host = AsgiHost(app, host="127.0.0.1", port=0, option="--port")
    await host.start()
    request = asyncio.create_task(client.get(f"http://127.0.0.1:{host.port}/"))
    await app.asked.wait()
    stopping = asyncio.create_task(host.stop(1))
    while host.serving and host._server is not None and not host._server.should_exit:
        await asyncio.sleep(0)
    return request, stopping


def test_a_server_that_stops_answers_the_current_request() -> None:
    async def run() -> None:
        app = SlowApp()
        async with httpx.AsyncClient(timeout=20) as client:
            request, stopping = await _stopping(app, client)
            done, _ = await asyncio.wait([stopping], timeout=0.05)
            assert not done
            app.release.set()
            assert (await request).text == "fine"
            await stopping

    asyncio.run(run())


def test_a_server_that_stops_cancels_a_request_that_takes_too_long() -> None:
    async def run() -> None:
        app = SlowApp()
        async with httpx.AsyncClient(timeout=20) as client:
            request, stopping = await _stopping(app, client)
            await stopping
            assert (await request).status_code == 500
            assert app.cancelled

    asyncio.run(run())


async def _client_address(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["client"][0].encode()})


def test_a_sender_cannot_choose_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits per sender use the address. The variable is for the explorer's proxies only."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def run() -> None:
        host = AsgiHost(_client_address, host="127.0.0.1", port=0, option="--port")
        await host.start()
        async with httpx.AsyncClient(timeout=20) as client:
            answer = await client.get(
                f"http://127.0.0.1:{host.port}/", headers={"X-Forwarded-For": "192.0.2.1"}
            )
        await host.stop(1)
        assert answer.text == "127.0.0.1"

    asyncio.run(run())
