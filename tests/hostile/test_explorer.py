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
from ui.serving.routes import MAX_MESSAGE_BYTES, MAX_OPEN_OF_ONE

database = explorers.database
stored_rows = explorers.stored_rows
explorer = explorers.explorer
fleet = explorers.fleet

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


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Callable[[], set[str]]]]:
    """Start an explorer on all addresses and under a path. Yield its address, and a function that
    returns the hosts outside loopback that the explorer called."""
    folder = tmp_path_factory.mktemp("watch")
    (folder / "sitecustomize.py").write_text(WATCH)
    noted = folder / "calls"
    noted.write_text("")

    def called() -> set[str]:
        calls = [json.loads(line) for line in noted.read_text().splitlines()]
        return {to for _, to in calls if to not in ("127.0.0.1", "localhost", "::1", "None")}

    url = f"sqlite:///{folder / 'empty.db'}"
    explorers.fill(url, [], [])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(folder))
        environment.setenv("WATCH_FILE", str(noted))
        options = {"host": "0.0.0.0", "base_path": "ops/tail", "allowed_hosts": ["ops.example.org"]}
        with explorers.running_explorer(folder, url, **options) as there:
            yield there, called


@pytest.fixture(scope="module")
def address(watched: tuple[str, Callable[[], set[str]]]) -> str:
    return watched[0]


def stream(address: str, **options: Any) -> ClientConnection:
    url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    # Without `max_queue=None`, a page whose messages are not read takes ten seconds to close.
    return connect(
        url,
        subprotocols=["streamlit"],  # type: ignore[list-item]
        open_timeout=30,
        max_size=None,
        max_queue=None,
        **options,
    )


def refused(address: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as error, stream(address, **options):
        pass
    return error.value.response.status_code


def test_a_page_with_dns_rebinding_reads_no_data(
    watched: tuple[str, Callable[[], set[str]]],
) -> None:
    """The explorer calls no host. `streamlit run` would call a host to find the machine's own
    address."""
    address, outside = watched
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
    # The function `connect` sends its own Host header. Behind a proxy that changes Host, Origin
    # keeps the name.
    own: list[str | None] = [f"http://{host}", "https://ops.example.org", None]
    for from_page in own:
        with stream(address, origin=from_page) as page:
            assert page.subprotocol == "streamlit"
    assert httpx.get(f"{address}/", headers={"Host": "ops.example.org"}).status_code == 200
    assert outside() <= {"0.0.0.0"}


def test_uploads_are_refused(address: str) -> None:
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


def test_the_pages_of_one_address_are_limited(address: str) -> None:
    with ExitStack() as pages:
        # Pages of earlier tests may still be open.
        first, *_ = [pages.enter_context(_soon(address)) for _ in range(MAX_OPEN_OF_ONE)]
        assert refused(address) == 403
        assert httpx.get(f"{address}/").status_code == 200
        first.close()
        pages.enter_context(_soon(address))


def _soon(address: str) -> ClientConnection:
    """Open a page as soon as the explorer accepts one more page."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return stream(address)
        except InvalidStatus:
            time.sleep(0.05)
    pytest.fail("a page that was closed made no room")


def test_bad_messages_end_one_page(address: str) -> None:
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
