import socket

import click
import pytest

from cli.options.addresses import Host, authority, base_url, is_loopback, reaches
from collector.errors import ListenError
from collector.listen.asgi_server import listen


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("https://gpu-host", "https://gpu-host"),
        ("http://gpu-host:8000/v1/", "http://gpu-host:8000"),
        ("http://gateway/team/llama/v1", "http://gateway/team/llama"),
        ("HTTP://gpu-host:8000/", "http://gpu-host:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_base_url_may_have_a_slash_and_v1(given: str, read: str) -> None:
    """OpenAI's clients require the `/v1`."""
    assert base_url(given) == read


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "neither http:// nor https://"),
        ("gpu-host:8000", "neither http:// nor https://"),
        ("file:///etc/passwd", "neither http:// nor https://"),
        ("http://", "no host"),
        ("http://:8000", "no host"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://gpu-host:0", "port 0"),
        ("http://gpu-host:99999", "Port out of range"),
        ("http://gpu-host:eight", "Port could not be cast"),
        ("http://gpu host", "blank or control"),
        ("http://gpu-host\r\nx: y", "blank or control"),
        ("http://gpu-host/?a=b", "more than a base address"),
    ],
)
def test_a_malformed_base_url_is_refused_with_the_reason(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        base_url(given)
    assert "allowed: http://HOST:PORT" in str(refused.value)


@pytest.mark.parametrize("given", ["http://me:s3cret@gpu-host", "ftp://me:s3cret@gpu-host:x"])
def test_a_password_is_refused_and_not_repeated(given: str) -> None:
    """Tailspan prints and logs the address."""
    with pytest.raises(ValueError, match="must not contain an @") as refused:
        base_url(given)
    assert "s3cret" not in str(refused.value)


def test_a_listening_address_becomes_a_reachable_one() -> None:
    assert authority("::1", 80) == "[::1]:80"
    assert authority("gpu-host", 80) == "gpu-host:80"


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_an_address_for_all_addresses_becomes_a_reachable_one(host: str, reached: str) -> None:
    try:
        listening = listen(host, 0, "--http-port")
    except ListenError:
        pytest.skip("this machine has no IPv6")
    with listening:
        port = listening.getsockname()[1]
        assert authority(host, port) == f"{reached}:{port}"
        socket.create_connection((reached.strip("[]"), port), 10).close()


def test_loopback_is_recognised_by_name_and_number() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "gpu-host", "")))


def test_a_host_is_read_with_brackets_or_without() -> None:
    assert Host().convert("[::1]", None, None) == Host().convert("::1", None, None) == "::1"


@pytest.mark.parametrize("given", ["", " ", "[]", "a b", "a/b", "h\0st", "\udcff", "höst"])
def test_a_malformed_host_is_refused(given: str) -> None:
    """An empty host would mean all addresses of the machine."""
    with pytest.raises(click.BadParameter, match=r"invalid address .*; allowed: 127\.0\.0\.1"):
        Host().convert(given, None, None)


@pytest.mark.parametrize(
    ("host", "listening", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "0.0.0.0", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("::1", "127.0.0.1", False),
        ("203.0.113.7", "0.0.0.0", False),  # reserved for documentation
        ("no-such-name.invalid", "0.0.0.0", False),
        ("x" * 300, "0.0.0.0", False),
    ],
)
def test_the_own_address_is_known_in_all_forms(host: str, listening: str, expected: bool) -> None:
    assert reaches(host, listening) is expected
