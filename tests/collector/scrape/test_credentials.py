import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from collector.errors import SecurityError
from collector.scrape.credentials import OPEN, TargetCredentials
from collector.scrape.failure_reasons import DiscoveryError, ScrapeError, ScrapeFailureReason
from collector.scrape.fetch import Clients, fetch
from collector.scrape.scraper import Scraper
from collector.scrape.targets import File, Target, place
from collector.testing import MemorySink
from tests.collector.conftest import Party

TOKEN = "a-token-that-is-never-shown"
BODY = b"vllm:num_requests_running 1\n"
Issue = Callable[..., Party]


@asynccontextmanager
async def guarded(
    token: str | None = None,
    party: Party | None = None,
    client_ca: Path | None = None,
    body_sent: bytes = BODY,
) -> AsyncIterator[int]:
    """Run a server with this certificate and token, and yield its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            good = token is None or f"authorization: bearer {token}".encode() in head.lower()
            status, body = ("200 OK", body_sent) if good else ("401 Unauthorized", b"")
            length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(f"HTTP/1.1 {status}\r\n{length}".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    context = None
    if party is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(party.certificate, party.key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def asked(
    port: int, access: TargetCredentials, scheme: str = "https"
) -> bytes | ScrapeFailureReason:
    clients = Clients()
    try:
        client = clients.of(access)
        return await fetch(client, f"{scheme}://127.0.0.1:{port}/metrics", 20.0, access)
    except ScrapeError as error:
        return error.reason
    finally:
        await clients.aclose()


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"

    async def ask() -> None:
        async with guarded(TOKEN) as port:
            file.write_text("another\n")
            access = TargetCredentials(token_file=file)
            assert await asked(port, OPEN, "http") is ScrapeFailureReason.UNAUTHORISED
            assert await asked(port, access, "http") is ScrapeFailureReason.UNAUTHORISED
            file.write_text(f"{TOKEN}\n")
            assert await asked(port, access, "http") == BODY
            file.unlink()
            assert await asked(port, access, "http") is ScrapeFailureReason.NO_TOKEN
            assert await asked(port, TargetCredentials(token=TOKEN), "http") == BODY

    asyncio.run(ask())


def test_a_certificate_needs_its_authority_and_its_name(ca: Path, issue: Issue) -> None:
    by_address = TargetCredentials(ca_file=ca)
    by_name = TargetCredentials(ca_file=ca, server_name="vllm.internal")

    async def ask() -> None:
        async with guarded(party=issue()) as port:
            assert await asked(port, by_address) == BODY
            assert await asked(port, OPEN) is ScrapeFailureReason.TLS
        async with guarded(party=issue("vllm.internal")) as port:
            assert await asked(port, by_address) is ScrapeFailureReason.TLS
            assert await asked(port, by_name) == BODY

    asyncio.run(ask())


def test_mutual_tls_shows_our_certificate(ca: Path, issue: Issue) -> None:
    async def ask() -> None:
        ours = issue("tailspan")
        async with guarded(party=issue(), client_ca=ca) as port:
            access = TargetCredentials(ca_file=ca, cert_file=ours.certificate, key_file=ours.key)
            assert await asked(port, access) == BODY
            assert isinstance(await asked(port, TargetCredentials(ca_file=ca)), ScrapeFailureReason)

    asyncio.run(ask())


def test_a_server_without_tls_is_reported_as_such() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            assert await asked(server.sockets[0].getsockname()[1], OPEN) is ScrapeFailureReason.TLS

    asyncio.run(ask())


@pytest.mark.parametrize(
    "given",
    [
        "http://gpu:8000",
        "dns+http://gpu:8000",
        "dnssrv+http://_vllm._tcp.gpu",
        "http://10.0.0.1:8000",
        "http://localhost.example:8000",
    ],
)
def test_a_token_is_sent_only_over_https_or_to_loopback(given: str) -> None:
    with pytest.raises(ValueError, match="the token would be sent unencrypted") as raised:
        place(given, TargetCredentials(token=TOKEN))
    assert TOKEN not in str(raised.value)
    place(given.replace("http:", "https:"), TargetCredentials(token=TOKEN))
    for local in ("http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:8000"):
        place(local, TargetCredentials(token=TOKEN))


def test_each_address_of_a_name_is_asked_for_the_names_certificate() -> None:
    """The certificate contains the host's name but not its addresses."""
    (target, *_) = asyncio.run(place("dns+https://localhost:8000").targets())
    assert target.access == TargetCredentials(server_name="localhost")
    assert target.url in ("https://127.0.0.1:8000/metrics", "https://[::1]:8000/metrics")


def test_a_token_is_in_no_text() -> None:
    access = TargetCredentials(token=TOKEN)
    assert TOKEN not in f"{access} {access!r} {Target('https://x/metrics', 'x', access=access)}"


def test_a_file_of_targets_has_credentials_by_label(tmp_path: Path, ca: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    path = tmp_path / "targets.json"
    labels = {
        "__scheme__": "https",
        "__token_file__": "token",
        "__tls_ca_file__": str(ca),
        "__tls_server_name__": "vllm.internal",
    }
    path.write_text(json.dumps([{"targets": ["x:1"], "labels": labels}, {"targets": ["y:1"]}]))
    guarded_one, open_one = File(path).read()
    assert guarded_one.access == TargetCredentials(
        token_file=tmp_path / "token", ca_file=ca, server_name="vllm.internal"
    )
    assert open_one.access == OPEN


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"__token_file__": "nowhere"}, "nowhere: No such file"),
        ({"__token_file__": 3}, "__token_file__: must be a text"),
        ({"__token_file__": "two"}, "two contains no token"),
        ({"__token_file__": "one", "__scheme__": "http"}, "the token would be sent unencrypted"),
        ({"__tls_ca_file__": "one"}, "one contains no certificate in PEM"),
        ({"__tls_cert_file__": "one"}, "set both, or neither"),
        ({"__tls_cert_file__": "one", "__tls_key_file__": "one"}, "must be a pair in PEM"),
    ],
)
def test_a_file_of_targets_that_cannot_be_followed_is_refused_by_place(
    tmp_path: Path, labels: dict[str, Any], named: str
) -> None:
    (tmp_path / "one").write_text(TOKEN)
    (tmp_path / "two").write_text(f"{TOKEN} {TOKEN}")
    path = tmp_path / "targets.json"
    path.write_text(json.dumps([{"targets": ["x:1"], "labels": {"__scheme__": "https", **labels}}]))
    with pytest.raises(DiscoveryError, match=r"targets.json: \[0\]") as raised:
        File(path).read()
    assert named in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_a_scraper_with_a_token_is_admitted_and_logs_no_token(
    tmp_path: Path, ca: Path, issue: Issue, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink()
    (tmp_path / "token").write_text(TOKEN)
    caplog.set_level(logging.DEBUG)

    async def ask() -> None:
        async with guarded(TOKEN, issue()) as port:
            path = tmp_path / "targets.json"
            labels = {"__scheme__": "https", "__tls_ca_file__": str(ca)}
            group = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
            for token, up in ((None, False), ("token", True)):
                if token is not None:
                    labels["__token_file__"] = token
                path.write_text(json.dumps([group]))
                scraper = Scraper([File(path)], sink)
                await scraper.discover()
                (state,) = scraper.report()
                await scraper.scrape(state.target)
                assert state.up is up
                assert state.failures == ({} if up else {ScrapeFailureReason.UNAUTHORISED: 1})

    asyncio.run(ask())
    assert [sample.running for sample in sink.samples] == [1]
    assert "is down: unauthorised: 401" in caplog.text
    assert TOKEN not in caplog.text


def test_wrong_credentials_are_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="nowhere"):
        TargetCredentials(ca_file=tmp_path / "nowhere").check()
    with pytest.raises(SecurityError, match="the environment contains no token"):
        TargetCredentials(token="two words").check()


def test_credential_files_of_targets_must_be_in_the_targets_folder(tmp_path: Path) -> None:
    """The author of a targets file must not be able to send other files to a target.

    A path that leaves the folder is refused, whether by `..`, as an absolute path or through a
    link. The argument `secrets` sets another folder.
    """
    for folder in ("targets", "secrets", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "token").write_text(TOKEN)
    (tmp_path / "targets" / "link").symlink_to(tmp_path / "other" / "token")
    (tmp_path / "targets" / "inside").symlink_to(tmp_path / "targets" / "token")
    (tmp_path / "targets-of-another").mkdir()
    (tmp_path / "targets-of-another" / "token").write_text(TOKEN)
    file = tmp_path / "targets" / "targets.json"

    def read(token: str, **about: Any) -> Target:
        labels = {"__token_file__": token}
        file.write_text(json.dumps([{"targets": ["127.0.0.1:1"], "labels": labels}]))
        (target,) = File(file, **about).read()
        return target

    for outside in (
        "../other/token",
        "../targets-of-another/token",
        str(tmp_path / "other" / "token"),
        "link",
        "/proc/self/environ",
    ):
        with pytest.raises(DiscoveryError, match=r"lies outside of .*--scrape-secrets") as error:
            read(outside)
        assert TOKEN not in str(error.value)
    for inside in ("token", "./token", "inside", str(tmp_path / "targets" / "token")):
        assert read(inside).access.headers() == {"Authorization": f"Bearer {TOKEN}"}
    named = tmp_path / "secrets"
    assert read("../secrets/token", secrets=named).access.headers()
    with pytest.raises(DiscoveryError, match="lies outside of"):
        read("token", secrets=named)
    kept = read("token").access
    (tmp_path / "targets" / "token").unlink()
    (tmp_path / "targets" / "token").symlink_to(tmp_path / "other" / "token")
    with pytest.raises(SecurityError, match="lies outside of"):
        kept.headers()


def test_a_token_is_sent_over_http_only_if_allowed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow it with --insecure-credentials"):
        place("http://gpu.example/metrics", TargetCredentials(token=TOKEN))
    assert place("http://gpu.example/metrics", TargetCredentials(token=TOKEN, insecure=True))
    (tmp_path / "token").write_text(TOKEN)
    file = tmp_path / "targets.json"

    def read(insecure: bool = False, **labels: str) -> list[Target]:
        labels["__token_file__"] = "token"
        file.write_text(json.dumps([{"targets": ["gpu.example:80"], "labels": labels}]))
        return File(file, insecure=insecure).read()

    with pytest.raises(DiscoveryError, match="the token would be sent unencrypted"):
        read()
    assert read(insecure=True)
    assert read(__insecure_credentials__="true")
    with pytest.raises(DiscoveryError, match='allowed: "true", "false"'):
        read(__insecure_credentials__="yes")


def test_renewed_certificates_are_used_without_a_restart(
    authority: trustme.CA, ca: Path, tmp_path: Path, issue: Issue
) -> None:
    trusted = tmp_path / "trusted.pem"
    trustme.CA().cert_pem.write_to_path(trusted)
    ours = issue("tailspan", by=trustme.CA())
    access = TargetCredentials(ca_file=trusted, cert_file=ours.certificate, key_file=ours.key)
    clients = Clients()

    async def scrape(port: int) -> bytes | ScrapeFailureReason:
        try:
            client = clients.of(access)
            return await fetch(client, f"https://127.0.0.1:{port}/metrics", 20.0, access)
        except ScrapeError as error:
            return error.reason

    async def ask() -> None:
        async with guarded(party=issue(), client_ca=ca) as port:
            assert await scrape(port) is ScrapeFailureReason.TLS
            authority.cert_pem.write_to_path(trusted)
            assert await scrape(port) != BODY  # the server refuses Tailspan's certificate
            issue("tailspan")
            assert await scrape(port) == BODY
            ours.key.write_text("not a key")
            assert await scrape(port) is ScrapeFailureReason.TLS
        await clients.aclose()

    asyncio.run(ask())
