import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tests.ui.opening import APP
from ui.serving.routes import Routes

DECIDED = {
    "/_stcore/health": 200,
    "/_stcore/metrics": 404,
    "/_stcore/host-config": 200,
    "/media/{file_id:path}": 200,
    "/_stcore/upload_file/{session_id}/{file_id}": 404,
    "/component/{path:path}": 404,
    "/_stcore/bidi-components/{path:path}": 200,
    "/auth/login": 404,
    "/auth/logout": 404,
    "/oauth2callback": 404,
    "/_stcore/agent/interact": 404,
    "/_stcore/agent/openapi.json": 404,
    "/_stcore/agent/mcp": 404,
    "": 200,
}
"""Streamlit's HTTP routes, and the status of each route without a sign-in."""


async def streamlit(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        return
    await PlainTextResponse("reached")(scope, receive, send)


def ask(routes: Routes, path: str, method: str = "GET") -> int:
    async def request() -> int:
        transport = httpx.ASGITransport(routes)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.request(method, path)).status_code

    return asyncio.run(request())


def test_every_route_of_streamlit_is_decided() -> None:
    """A new route of Streamlit returns 404, and fails this test, until it is added to the list."""
    code = (
        "import sys; from streamlit.starlette import App;"
        "app = App(sys.argv[1])._build_starlette_app();"
        "print(*sorted({getattr(each, 'path', '?') for each in app.routes}), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(APP)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert set(done.stdout.removesuffix("\n").split("\n")) == {*DECIDED, "/_stcore/stream"}


@pytest.mark.parametrize(("path", "status"), DECIDED.items())
@pytest.mark.parametrize("base_path", ["", "ops/tail"])
def test_a_route_is_open_or_not_there(path: str, status: int, base_path: str) -> None:
    routes = Routes(streamlit, base_path=base_path)
    path = path.replace("{", "").replace("}", "") or "/"
    prefix = f"/{base_path}" if base_path else ""
    assert ask(routes, f"{prefix}{path}") == status
    if base_path:
        assert ask(routes, path) == 404


@pytest.mark.parametrize("path", ["/.git/config", "/static", "/_stcore/", "/a/index.html"])
def test_an_unlisted_route_is_not_found(path: str) -> None:
    assert ask(Routes(streamlit), path) == 404


@pytest.mark.parametrize("base", ["", "/ops/tail"])
def test_an_unknown_path_is_answered_with_the_pages(base: str) -> None:
    transport = httpx.ASGITransport(Routes(streamlit, base_path=base.strip("/")))

    async def text() -> str:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return (await client.get(f"{base}/nonsense")).text

    shown = asyncio.run(text())
    assert shown.startswith(f"Not found. The pages are {base}/overview, {base}/slos, ")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_uploads_and_other_methods_are_refused(method: str) -> None:
    assert ask(Routes(streamlit), "/", method) == 405
    assert ask(Routes(streamlit), "/media/a", method) == 405
    assert ask(Routes(streamlit), "/_stcore/upload_file/a/b", method) == 404


def test_without_a_sign_in_only_health_and_sign_in_respond() -> None:
    def refuse(_scope: Scope, _path: str) -> Response:
        return PlainTextResponse("sign in", 401)

    routes = Routes(streamlit, admission=refuse)
    open_ = ("/_stcore/health", "/auth/login", "/oauth2callback", "/static/js/index.js")
    assert {ask(routes, path) for path in open_} == {200}
    shut = ("/", "/index.html", "/_stcore/host-config", "/media/a", "/_stcore/bidi-components/a/b")
    assert {ask(routes, path) for path in shut} == {401}
    assert ask(routes, "/_stcore/metrics") == 404


class Socket:
    """A browser's WebSocket, as the server passes it to the application."""

    def __init__(self, peer: str) -> None:
        self.scope: Scope = {
            "type": "websocket",
            "path": "/_stcore/stream",
            "headers": [(b"host", b"127.0.0.1:8501"), (b"origin", b"https://ops.example.org")],
            "client": (peer, 1),
        }
        self.sent: list[Message] = []
        self._received = iter(({"type": "websocket.connect"},))
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        for message in self._received:
            return message
        await self.left.wait()
        return {"type": "websocket.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def test_pages_are_limited_for_one_address_and_for_all() -> None:
    sockets = []  # otherwise, the garbage collector may end a connection

    async def opened(routes: Callable[..., Awaitable[None]], peer: str) -> tuple[Socket, str]:
        socket = Socket(peer)
        sockets.append(socket)
        socket.task = asyncio.create_task(  # type: ignore[attr-defined]  # kept alive with it
            routes(socket.scope, socket.receive, socket.send)  # type: ignore[arg-type]
        )
        while not socket.sent:
            await asyncio.sleep(0)
        return socket, str(socket.sent[0]["type"])

    async def scenario() -> None:
        routes = Routes(streamlit, most=3, max_of_one=2)
        first, answer = await opened(routes, "a")
        assert answer == "websocket.accept"
        assert (await opened(routes, "a"))[1] == "websocket.accept"
        assert (await opened(routes, "a"))[1] == "websocket.close"
        assert (await opened(routes, "b"))[1] == "websocket.accept"
        assert (await opened(routes, "c"))[1] == "websocket.close"
        first.left.set()
        await first.task  # type: ignore[attr-defined]
        assert (await opened(routes, "c"))[1] == "websocket.accept"

    asyncio.run(scenario())


def test_streamlit_sees_the_host_that_the_browser_sees() -> None:
    """With another host, Streamlit would ask a server on the internet for its own address."""
    seen: list[bytes] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.extend(value for name, value in scope["headers"] if name == b"host")

    socket = Socket("a")
    asyncio.run(Routes(app)(socket.scope, socket.receive, socket.send))
    assert seen == [b"ops.example.org"]
