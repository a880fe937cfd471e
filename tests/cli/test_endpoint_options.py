import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import trustme
from click.testing import CliRunner

from cli.main import tailspan
from cli.options.client_access import access_of
from cli.options.endpoints import endpoint_access_of
from collector.listen.tls import Tls
from server.endpoint_access import EndpointAccess
from server.stack import Ports, Stack
from store.database import open_database

TOKEN = "the-token-that-is-never-shown"
GIVEN: dict[str, Any] = {
    "token_file": None,
    "tls_cert": None,
    "tls_key": None,
    "tls_client_ca": None,
    "insecure_bind": False,
    "allowed_host": (),
    "max_body": 16,
    "max_peer_rate": 128,
    "max_rate": 512,
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("credentials")
    paths = {name: folder / name for name in ("token_file", "tls_cert", "tls_key", "ca")}
    paths["token_file"].write_text(f"{TOKEN}\n")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(paths["ca"])
    issued.cert_chain_pems[0].write_to_path(paths["tls_cert"])
    issued.private_key_pem.write_to_path(paths["tls_key"])
    return paths


@pytest.fixture
def files(paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return a token file and a certificate for loopback; unset the variables."""
    for name in ("TAILSPAN_TOKENS", "TAILSPAN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return paths


def _access(host: str, **given: Any) -> EndpointAccess:
    return endpoint_access_of(host, **{**GIVEN, **given})


def _pick(files: dict[str, Path], *names: str) -> dict[str, Path]:
    return {name: files[name] for name in names}


def test_loopback_requires_no_credentials(files: dict[str, Path]) -> None:
    """Only this machine can connect to a loopback address."""
    for host in ("127.0.0.1", "localhost", "::1"):
        access = _access(host)
        assert (access.tokens, access.tls, access.explorer_host) == (None, None, None)
        assert access.scheme == "http"


@pytest.mark.parametrize(
    ("host", "given", "missing"),
    [
        ("0.0.0.0", (), r"set tokens \(--token-file\) and TLS \(--tls-cert, --tls-key\)"),
        ("::", (), "set tokens"),
        ("127.example.com", (), "set tokens"),
        ("0.0.0.0", ("token_file",), r"set TLS \(--tls-cert, --tls-key\)"),
        ("10.1.2.3", ("tls_cert", "tls_key"), r"set tokens \(--token-file\)"),
    ],
)
def test_another_address_needs_tokens_and_tls_or_a_waiver(
    files: dict[str, Path], host: str, given: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(
        click.UsageError,
        match=missing + r".*; --insecure-bind allows all machines to read and write",
    ):
        _access(host, **_pick(files, *given))
    assert _access(host, **_pick(files, *given), insecure_bind=True).explorer_host is None


def test_pages_with_sign_in_need_not_stay_on_loopback(files: dict[str, Path]) -> None:
    given = _pick(files, "token_file", "tls_cert", "tls_key")
    assert _access("0.0.0.0", **given).explorer_host == "127.0.0.1"
    assert _access("0.0.0.0", **given, signed_in=True).explorer_host is None
    with pytest.raises(click.UsageError, match="tokens"):
        _access("0.0.0.0", signed_in=True)


def test_another_address_is_served_with_tokens_and_tls(files: dict[str, Path]) -> None:
    access = _access("0.0.0.0", **_pick(files, "token_file", "tls_cert", "tls_key"))
    assert access.tokens
    assert access.tls
    assert (access.explorer_host, access.scheme) == ("127.0.0.1", "https")
    assert TOKEN not in repr(access)


def test_a_client_certificate_is_accepted_like_a_token(files: dict[str, Path]) -> None:
    access = _access("0.0.0.0", **_pick(files, "tls_cert", "tls_key"), tls_client_ca=files["ca"])
    assert access.tokens is None


def test_half_a_pair_is_refused(files: dict[str, Path]) -> None:
    for name in ("tls_cert", "tls_key"):
        with pytest.raises(click.UsageError, match="--tls-cert and --tls-key: set both"):
            _access("127.0.0.1", **_pick(files, name))
    with pytest.raises(click.UsageError, match="--tls-client-ca needs --tls-cert"):
        _access("127.0.0.1", tls_client_ca=files["ca"])


def test_up_refuses_an_open_address_before_it_starts(
    files: dict[str, Path], tmp_path: Path
) -> None:
    database = tmp_path / "new" / "tailspan.db"
    result = CliRunner().invoke(
        tailspan, ["up", "--host", "0.0.0.0", "--database", f"sqlite:///{database}"]
    )
    assert result.exit_code == 2
    assert "--insecure-bind" in result.stderr
    assert not database.parent.exists()


def test_names_are_allowed_by_option_and_environment(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSPAN_ALLOWED_HOSTS", "a.example.org,*.b.example.org")
    hosts = _access("127.0.0.1", allowed_host=("c.example.org",)).hosts
    assert hosts is not None
    for name in ("a.example.org", "x.b.example.org:4318", "c.example.org"):
        assert hosts.allow(name)
    assert not hosts.allow("d.example.org")
    with pytest.raises(click.UsageError, match="--allowed-host: 'http://a' is not a host name"):
        _access("127.0.0.1", allowed_host=("http://a",))


def test_allowed_host_names_depend_on_the_address(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token, every host name is allowed. Without a token, a host name in public DNS is
    refused."""
    monkeypatch.delenv("TAILSPAN_ALLOWED_HOSTS", raising=False)
    loopback = _access("127.0.0.1").hosts
    bare = _access("0.0.0.0", insecure_bind=True).hosts
    token = _access("0.0.0.0", insecure_bind=True, **_pick(files, "token_file")).hosts
    assert loopback
    assert bare
    assert token
    for name, allowed in (
        ("localhost", (True, True, True)),
        ("10.1.2.3:9464", (True, True, True)),
        ("tailspan.ns.svc:4318", (False, True, True)),
        ("evil.example", (False, False, True)),
    ):
        assert tuple(hosts.allow(name) for hosts in (loopback, bare, token)) == allowed, name


@pytest.fixture
def secured(url: str, files: dict[str, Path], tailspan_of: Callable[..., list[str]]) -> list[str]:
    """Return a `doctor` command for a Tailspan with a token and TLS."""
    access = _access("127.0.0.1", **_pick(files, "token_file", "tls_cert", "tls_key"))
    assert access.scheme == "https"
    return ["doctor", f"--database={url}", "--format=json", *tailspan_of(access=access)]


def _ask(command: list[str], *more: str) -> dict[str, list[Any]]:
    result = CliRunner().invoke(tailspan, [*command, *more], catch_exceptions=False)
    assert TOKEN not in result.output
    found: dict[str, list[Any]] = {}
    for line in result.stdout.splitlines():
        finding = json.loads(line)
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_doctor_gets_in_only_with_the_token_and_the_authority(
    secured: list[str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    token, authority = f"--token-file={files['token_file']}", f"--tls-ca={files['ca']}"
    checks = ("OTLP gRPC", "OTLP HTTP", "metrics")
    found = _ask(secured, token, authority)
    for check in checks:
        assert all(finding["ok"] for finding in found[check]), found[check]
    unknown = _ask(secured, token, "--tls")
    assert "CERTIFICATE_VERIFY_FAILED" in unknown["OTLP HTTP"][0]["detail"]
    assert unknown["OTLP gRPC"][0]["ok"] is False
    monkeypatch.setenv("TAILSPAN_TOKENS", "not-the-one-that-is-good")
    wrong = _ask(secured, authority)
    for check in checks:
        assert "--token-file" in wrong[check][-1]["mend"]
    # /health needs no token.
    assert [finding["ok"] for finding in wrong["metrics"]] == [True, True, False]


def test_half_of_doctors_pair_is_refused(files: dict[str, Path]) -> None:
    given: dict[str, Any] = {
        "token_file": None,
        "tls": False,
        "tls_ca": None,
        "tls_client_cert": None,
        "tls_client_key": None,
    }
    with pytest.raises(click.UsageError, match="--tls-client-cert and --tls-client-key"):
        access_of(**{**given, "tls_client_cert": files["tls_cert"]})
    with pytest.raises(click.UsageError, match="--tls-ca"):
        access_of(**{**given, "tls_ca": files["token_file"]})
    pair = {"tls_client_cert": files["tls_cert"], "tls_client_key": files["tls_key"]}
    assert access_of(**{**given, **pair}).scheme == "https"


def test_tls_needs_no_token_on_loopback(url: str, files: dict[str, Path]) -> None:
    access = EndpointAccess(tls=Tls(files["tls_cert"], files["tls_key"]))
    engine = open_database(url)

    async def run() -> str:
        async with Stack(
            engine, url, "127.0.0.1", Ports(0, 0, 0, 0), explorer=False, access=access
        ) as stack:
            return stack.http_endpoint

    assert asyncio.run(run()).startswith("https://127.0.0.1:")
    engine.dispose()
