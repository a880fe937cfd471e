import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from analysis.sign_in_file import load_sign_in
from rig.ports import free_port
from tests.ui import conftest as explorers
from ui.frame.pages import FIRST, PAGES
from ui.serving.routes import MAX_MESSAGE_BYTES, MAX_OPEN_OF_ONE

explorer = explorers.explorer
database = explorers.database
fleet = explorers.fleet
incident = explorers.incident

WATCH = """
import json, os, sys

def watch(event, details):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        to = details[0] if event == "socket.getaddrinfo" else details[1]
        to = to[0] if isinstance(to, tuple) else to
        with open(os.environ["WATCH_FILE"], "a") as file:
            file.write(json.dumps([event, str(to)]) + "\\n")

sys.addaudithook(watch)
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """Return a function that returns non-loopback addresses that child processes connected to."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    noted = tmp_path / "watch" / "calls"
    noted.write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "watch"))
    monkeypatch.setenv("WATCH_FILE", str(noted))

    def called() -> set[str]:
        calls = [json.loads(line) for line in noted.read_text().splitlines()]
        return {to for _, to in calls if to not in ("127.0.0.1", "localhost", "::1", "None")}

    return called


def stream(address: str, **options: Any) -> ClientConnection:
    url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    return connect(url, subprotocols=["streamlit"], open_timeout=30, max_size=None, **options)  # type: ignore[list-item]


def refused(address: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as error, stream(address, **options):
        pass
    return error.value.response.status_code


@pytest.mark.parametrize("base_path", ["", "ops/tail"])
def test_a_page_with_dns_rebinding_reads_no_data(
    explorer: Callable[..., str],
    database: Callable[..., str],
    outside: Callable[[], set[str]],
    base_path: str,
) -> None:
    address = explorer(database(), base_path=base_path, allowed_hosts=["ops.example.org"])
    host = urlsplit(address).netloc
    evil = {"Host": "evil.example:8501"}
    for path in ("/", "/_stcore/host-config", "/static/x.js", "/media/a.csv"):
        answer = httpx.get(f"{address}{path}", headers=evil)
        assert answer.status_code == 403
        assert "--allowed-host" in answer.text
    assert httpx.get(f"{address}/_stcore/health", headers=evil).status_code == 200
    assert httpx.get(f"{address}/").status_code == 200
    parts = urlsplit(address)
    there = socket.create_connection((parts.hostname, parts.port))
    assert refused(f"http://evil.example:8501{parts.path}", sock=there) == 403
    for origin in ("http://evil.example", "http://127.0.0.1:3000", "null", "http://8.8.8.8"):
        assert refused(address, origin=origin) == 403
    # `connect` sends its own Host. Behind a proxy that changes Host, Origin has the name.
    own: list[str | None] = [f"http://{host}", "https://ops.example.org", None]
    for from_page in own:
        with stream(address, origin=from_page) as page:
            assert page.subprotocol == "streamlit"
    assert httpx.get(f"{address}/", headers={"Host": "ops.example.org"}).status_code == 200
    assert outside() == set()


def test_the_explorer_calls_no_host_at_its_start(
    explorer: Callable[..., str], database: Callable[..., str], outside: Callable[[], set[str]]
) -> None:
    """By default, `streamlit run` asks a server on the internet for this machine's address."""
    address = explorer(database(), host="0.0.0.0")
    assert refused(address, origin="http://evil.example") == 403
    assert outside() <= {"0.0.0.0"}


def test_uploads_are_refused(explorer: Callable[..., str], database: Callable[..., str]) -> None:
    address = explorer(database())
    files = {"file": ("a.bin", b"x" * 1_000_000)}
    with stream(address) as page, httpx.Client() as client:
        page.send(rerun())
        answers = {
            client.request(
                method, f"{address}/_stcore/upload_file/session-{number}/file", files=files
            ).status_code
            for number in range(20)
            for method in ("PUT", "POST")
        }
    assert answers == {404}


def test_the_pages_of_one_address_are_limited(
    explorer: Callable[..., str], database: Callable[..., str]
) -> None:
    address = explorer(database())
    with ExitStack() as pages:
        first, *_ = [pages.enter_context(stream(address)) for _ in range(MAX_OPEN_OF_ONE)]
        assert refused(address) == 403
        assert httpx.get(f"{address}/").status_code == 200
        first.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                pages.enter_context(stream(address))
                break
            except InvalidStatus:
                time.sleep(0.05)
        else:
            pytest.fail("a page that was closed made no room")


def test_bad_messages_end_one_page(
    explorer: Callable[..., str], database: Callable[..., str]
) -> None:
    address = explorer(database())
    with stream(address) as other:
        for message in (b"x" * (MAX_MESSAGE_BYTES + 1), b"\xff" * 100, "text"):
            with stream(address) as page:
                page.send(message)
                with pytest.raises(ConnectionClosed):
                    _read_on(page)
        other.send(rerun())
        assert other.recv(timeout=30)


def _read_on(page: ClientConnection) -> None:
    while True:
        page.recv(timeout=30)


def rerun() -> bytes:
    message = BackMsg()
    message.rerun_script.query_string = "page=hurt"
    return message.SerializeToString()


@pytest.fixture
def provider() -> Iterator[Any]:
    """Run an OpenID Connect provider on loopback that signs in Jane."""
    pytest.importorskip("authlib", reason="Authlib is not installed: the extra sign-in")
    from tests.ui.sign_in import provider as providers

    with providers.running() as running:
        yield running


def test_without_a_sign_in_there_is_health_and_the_way_in(
    explorer: Callable[..., str],
    database: Callable[..., str],
    fleet: Any,
    provider: Any,
    tmp_path: Path,
) -> None:
    from tests.ui.sign_in.provider import CLIENT, CLIENT_SECRET

    port = free_port()
    file = tmp_path / "sign-in.yaml"
    file.write_text(
        f"issuer: {provider.issuer}\nclient_id: {CLIENT}\nclient_secret: {CLIENT_SECRET}\n"
        f"url: http://127.0.0.1:{port}/ops\nallow: ['@example.org']\n"
    )
    asked = load_sign_in(file, {})
    url = database(*fleet(50, time.time_ns() - 50 * 10**9, 40))
    address = explorer(url, port=port, base_path="ops", sign_in=(file, asked))
    origin = f"http://127.0.0.1:{port}"
    with httpx.Client() as client:
        assert client.get(f"{address}/_stcore/health").status_code == 200
        for path in ("host-config", "bidi-components/a/b"):
            assert client.get(f"{address}/_stcore/{path}").status_code == 401
        for path in ("metrics", "upload_file/a/b", "agent/openapi.json"):
            assert client.get(f"{address}/_stcore/{path}").status_code == 404
        assert client.get(f"{address}/media/a.csv").status_code == 401
        assert refused(address, origin=origin) == 403
        forged = {"Cookie": '_streamlit_user="2|1:0|10:1|5:eyJ9|x"'}
        assert refused(address, origin=origin, additional_headers=forged) == 403
        page = client.get(f"{address}/?page=requests&tenant=a")
        assert page.status_code == 401
        assert "Sign in" in page.text
        assert "acme" not in page.text
        fields = _fields(page.text)
        back = client.get(
            f"{address}/auth/login",
            params=fields,
            headers={"Referer": str(page.url)},
            follow_redirects=True,
        )
        assert back.status_code == 200
        assert urlsplit(str(back.url)).path == "/ops/requests"
        assert parse_qs(urlsplit(str(back.url)).query) == {"tenant": ["a"]}
        assert client.get(f"{address}/_stcore/host-config").status_code == 200
        cookies = "; ".join(f"{each.name}={each.value}" for each in client.cookies.jar)
        signed_in = {"Cookie": cookies}
        with stream(address, origin=origin, additional_headers=signed_in) as opened:
            assert opened.subprotocol == "streamlit"
        assert refused(address, origin="http://evil.example", additional_headers=signed_in) == 403


def _fields(page: str) -> dict[str, str]:
    _, _, rest = page.partition("name='provider' value='")
    return {"provider": rest.partition("'")[0]}


MARKUP = (
    "![x](http://evil.example/a.png) [a](http://evil.example/b) http://evil.example/c"
    ' <a href="http://evil.example/d">x</a><img src="http://evil.example/e.png">'
    " $\\LaTeX$ :smile: :red[x] `x` **x**"
)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_tenants_markup_is_text_and_no_page_calls_another_host(
    explorer: Callable[..., str], database: Callable[..., str], incident: Any, tab: Any
) -> None:
    """A request to another host would reveal the reader and the page."""
    start_s = int(time.time()) - 1_800
    names = ("tenant", "route", "model", "replica", "region", "lora", "request_id")
    rows = incident(start_s * 10**9, number=60, **dict.fromkeys(names, MARKUP))
    address = explorer(database(rows))
    page = tab(viewport={"width": 1280, "height": 900})
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.on("websocket", lambda websocket: asked.add(websocket.url))
    row = rows[-1]
    for each in PAGES:
        query = f"from={start_s + 600}&to={start_s + 1_200}&per=tenant"
        query += "" if each.key == FIRST else f"&page={each.key}"
        if each.key == "request":
            query += f"&request={row.trace_id}/{row.span_id}"
        page.goto(f"{address}/?{query}")
        page.locator(".headline").first.wait_for()
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
        for closed in page.locator("details summary").all():
            closed.click()
        assert page.locator("[data-testid=stException]").count() == 0, each.key
        found = page.evaluate(
            """() => [...document.querySelectorAll('*')].flatMap(
                node => ['href', 'src', 'xlink:href', 'srcset', 'style'].map(
                    name => node.getAttribute(name))
            ).filter(value => value && value.includes('evil'))"""
        )
        assert found == [], each.key
        assert page.locator(".katex, .stMarkdownColoredText").count() == 0, each.key
    hosts = {urlsplit(url).hostname for url in asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
    assert any(url.startswith("ws:") for url in asked)
