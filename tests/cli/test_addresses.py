import click
import pytest

from cli.options.addresses import Host, authority, base_url, is_loopback


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://gpu-host:8000", "http://gpu-host:8000"),
        ("https://gpu-host", "https://gpu-host"),
        ("http://gpu-host:8000/", "http://gpu-host:8000"),
        ("http://gpu-host:8000/v1", "http://gpu-host:8000"),
        ("http://gpu-host:8000/v1/", "http://gpu-host:8000"),
        ("http://gateway/team/llama/v1", "http://gateway/team/llama"),
        ("HTTP://gpu-host:8000", "http://gpu-host:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_base_url_is_read_as_people_write_it(given: str, read: str) -> None:
    """With a slash or without, and with the /v1 that OpenAI's clients want."""
    assert base_url(given) == read


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "neither http:// nor https://"),
        ("gpu-host:8000", "neither http:// nor https://"),
        ("file:///etc/passwd", "neither http:// nor https://"),
        ("ftp://gpu-host", "neither http:// nor https://"),
        ("http://", "no host"),
        ("http://:8000", "no host"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://gpu-host:0", "port 0"),
        ("http://gpu-host:99999", "Port out of range"),
        ("http://gpu-host:eight", "Port could not be cast"),
        ("http://gpu host", "blank or control"),
        ("http://gpu-host\r\nx: y", "blank or control"),
        ("http://gpu-host/?a=b", "more than a base address"),
        ("http://gpu-host/#a", "more than a base address"),
    ],
)
def test_what_is_no_base_url_is_refused_with_the_reason(given: str, why: str) -> None:
    """And with what would be allowed."""
    with pytest.raises(ValueError, match=why) as refused:
        base_url(given)
    assert "allowed: http://HOST:PORT" in str(refused.value)


@pytest.mark.parametrize("given", ["http://me:s3cret@gpu-host", "ftp://me:s3cret@gpu-host:x"])
def test_a_password_is_refused_and_not_repeated(given: str) -> None:
    """The address is printed and logged; a password in it would be, too."""
    with pytest.raises(ValueError, match="must not hold an @") as refused:
        base_url(given)
    assert "s3cret" not in str(refused.value)


def test_an_address_to_listen_on_becomes_one_to_go_to() -> None:
    """0.0.0.0 means every address, and is none; IPv6 stands in brackets."""
    assert authority("0.0.0.0", 80) == authority("::", 80) == "127.0.0.1:80"
    assert authority("::1", 80) == "[::1]:80"
    assert authority("gpu-host", 80) == "gpu-host:80"


def test_loopback_is_told_from_what_others_can_reach() -> None:
    """By its name or number."""
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "gpu-host", "")))


def test_a_host_is_read_with_brackets_or_without() -> None:
    """As it stands in a URL, or not."""
    assert Host().convert("[::1]", None, None) == Host().convert("::1", None, None) == "::1"


@pytest.mark.parametrize("given", ["", " ", "[]", "a b", "a/b", "h\0st", "\udcff", "höst"])
def test_what_is_no_host_is_refused(given: str) -> None:
    """An empty one above all: it would be every address of the machine."""
    with pytest.raises(click.BadParameter, match=r"no address; allowed: 127\.0\.0\.1"):
        Host().convert(given, None, None)
