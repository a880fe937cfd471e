import socket
from collections.abc import Callable

import pytest

from server import http_check


def test_an_answer_has_its_status_reason_and_body(
    stranger: Callable[..., str], http_answer: Callable[..., bytes]
) -> None:
    url = stranger(
        {
            "/health": http_answer(body="fine"),
            "/busy": http_answer(503, "Service Unavailable", "no GPU"),
            "/v1/traces": http_answer(),
        }
    )
    healthy, busy = http_check.get(f"{url}/health"), http_check.get(f"{url}/busy")
    assert (healthy, healthy.ok) == (http_check.HttpResult(200, "OK", "fine"), True)
    assert (busy.ok, busy.why, busy.body) == (False, "status 503 Service Unavailable", "no GPU")
    assert http_check.post(f"{url}/v1/traces", b"\0", "application/x-protobuf").ok


def test_a_refused_connection_has_an_error_text(free_port: int) -> None:
    answer = http_check.get(f"http://127.0.0.1:{free_port}/health")
    assert (answer.status, answer.why) == (None, "Connection refused")


@pytest.mark.parametrize(
    "reported", [b"", b"\x1b[31mSSH-2.0\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"\0"]
)
def test_other_protocols_are_no_answer(stranger: Callable[..., str], reported: bytes) -> None:
    answer = http_check.get(stranger(reported))
    assert answer.status is None
    assert not answer.ok
    assert "HTTP" in answer.why or "closed connection" in answer.why
    assert answer.why.isprintable()


def test_control_characters_in_foreign_text_are_escaped(stranger: Callable[..., str]) -> None:
    answer = http_check.get(stranger(b"HTTP/1.1 500 \x1b]0;owned\x07" + b"x" * 5_000 + b"\r\n\r\n"))
    assert answer.why.startswith(r"status 500 \x1b]0;owned\x07xxx")
    assert len(answer.why) == http_check.WIDEST_WHY


def test_a_redirect_is_reported_and_not_followed(
    stranger: Callable[..., str], http_answer: Callable[..., bytes]
) -> None:
    url = stranger(http_answer(307, "Temporary Redirect", "", "Location: file:///etc/passwd"))
    answer = http_check.get(url)
    assert (answer.ok, answer.why) == (False, "status 307 moved to file:///etc/passwd")


@pytest.mark.parametrize(
    ("manner", "begun"),
    [
        ("drip", b""),
        ("drip", b"HTTP/1.1 200 OK\r\nX-Slow: "),
        ("drip", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("deaf", b""),
    ],
)
def test_a_slow_response_times_out(stranger: Callable[..., str], manner: str, begun: bytes) -> None:
    """If a server sends a byte from time to time, the timeout of a socket never expires."""
    answer = http_check.get(stranger(begun, manner), timeout_s=0.2)
    assert answer == http_check.HttpResult(None, "no response within 0.2 s")


def test_an_endless_answer_is_read_only_so_far(
    stranger: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_check, "MAX_BYTES", 10)
    answer = http_check.get(stranger(b"HTTP/1.1 200 OK\r\n\r\n0123", "drip"), timeout_s=30)
    assert answer.body == "0123xxxxxx"


def test_an_invalid_address_gives_no_response() -> None:
    addresses = ("", "gpu-host", "file:///etc/passwd", "http://[::1", "http://a..b/")
    for url in (*addresses, "http://x:99999"):
        assert http_check.get(url).status is None


def test_a_proxy_in_the_environment_is_passed_by(
    stranger: Callable[..., str], http_answer: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert http_check.get(stranger(http_answer())).ok
