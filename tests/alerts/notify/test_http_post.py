import base64
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from alerts.notify.channels import Channel, ChannelPost, ReceiverType
from alerts.notify.http_post import (
    MAX_BYTES,
    ChannelPoster,
    ChannelResponse,
    DeliveryVerdict,
    retry_after_s,
)
from alerts.secrets import Secret
from rig.http_servers import HttpReply

POST = ChannelPost(b'{"a": 1}', headers={"Idempotency-Key": "k"})
Make = Callable[..., Channel]


def test_a_message_arrives_as_it_is(receiver: Any, channel: Make) -> None:
    answer = ChannelPoster(channel(url=f"{receiver.url}/base/"))(
        ChannelPost(POST.body, "/api", POST.headers)
    )
    assert answer == ChannelResponse(200, "ok")
    assert answer.verdict is DeliveryVerdict.DELIVERED
    (got,) = receiver.got
    assert (got.path, got.body) == ("/base/api", POST.body)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == "k"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (202, DeliveryVerdict.DELIVERED),
        (204, DeliveryVerdict.DELIVERED),
        (400, DeliveryVerdict.REFUSED),
        (404, DeliveryVerdict.REFUSED),
        (408, DeliveryVerdict.LATER),
        (410, DeliveryVerdict.REFUSED),
        (429, DeliveryVerdict.LATER),
        (500, DeliveryVerdict.LATER),
        (503, DeliveryVerdict.LATER),
    ],
)
def test_an_answer_is_judged_by_its_status(
    receiver: Any, channel: Make, status: int, verdict: DeliveryVerdict
) -> None:
    receiver.answers = [HttpReply(status)]
    answer = ChannelPoster(channel(url=receiver.url))(POST)
    assert (answer.status, answer.verdict) == (status, verdict)


def test_a_redirect_is_not_followed(receiver: Any, channel: Make) -> None:
    """Only the configured address may receive the message and its keys."""
    receiver.answers = [HttpReply(307, headers={"Location": f"{receiver.url}/elsewhere"})]
    answer = ChannelPoster(channel(url=receiver.url))(POST)
    assert answer.verdict is DeliveryVerdict.REFUSED
    assert "redirect" in answer.text
    assert [each.path for each in receiver.got] == ["/"]


def test_only_the_start_of_a_huge_answer_is_read(receiver: Any, channel: Make) -> None:
    receiver.answers = [HttpReply(body=b"\x1b[2Jhello\n" + b"x" * 50 * MAX_BYTES)]
    answer = ChannelPoster(channel(url=receiver.url))(POST)
    assert answer.verdict is DeliveryVerdict.DELIVERED
    assert answer.text.startswith("[2Jhello xxx")
    assert len(answer.text) == 200


@pytest.mark.parametrize(
    ("manner", "text"),
    [
        ("closes", "the receiver closed the connection, or does not use HTTP"),
        ("babbles", "the receiver closed the connection, or does not use HTTP"),
        ("deaf", "no complete response within 0.3 s"),
        ("drips", "no complete response within 0.3 s"),
    ],
)
def test_a_malformed_or_slow_answer_is_retried(
    rude: Callable[[str], str], channel: Make, manner: str, text: str
) -> None:
    answer = ChannelPoster(channel(url=rude(manner)), whole_s=0.3)(POST)
    assert (answer.status, answer.text, answer.verdict) == (None, text, DeliveryVerdict.LATER)


def test_attempts_that_hang_do_not_pile_up(rude: Callable[[str], str], channel: Make) -> None:
    send = ChannelPoster(channel(url=rude("deaf")), whole_s=0.05)
    before = threading.active_count()
    send(POST)
    assert {send(POST).text for _ in range(20)} == {"the previous attempt has not ended yet"}
    assert threading.active_count() <= before + 2


def test_a_refused_connection_has_tailspans_error_text(channel: Make, free_port: int) -> None:
    """The HTTP library's message contains the address, which may be secret."""
    answer = ChannelPoster(channel(url=f"http://127.0.0.1:{free_port}/T0K3N-of-the-address"))(POST)
    assert answer == ChannelResponse(None, "the connection is refused")
    answer = ChannelPoster(channel(url="http://no-such-host.invalid/T0K3N-of-the-address"))(POST)
    assert "T0K3N" not in str(answer)
    assert answer.verdict is DeliveryVerdict.LATER


def test_no_secret_is_repeated_or_logged(
    receiver: Any, channel: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = "/services/T000/B000000000/T0K3N%2Fx"
    held = Channel(
        name="c",
        kind=ReceiverType.WEBHOOK,
        severities=("page",),
        url=Secret(f"{receiver.url}{path}?sig=abcdef"),
        key=Secret("the-key"),
        authorization=Secret("Bearer the-bearer"),
    )
    echo = f"{receiver.url}{path}?sig=abcdef {path} sig=abcdef T0K3N%2Fx the-key the-bearer"
    receiver.answers = [HttpReply(400, echo.encode())]
    answer = ChannelPoster(held)(POST)
    assert receiver.got[0].headers["authorization"] == "Bearer the-bearer"
    for secret in ("T0K3N", "B000000000", "abcdef", "the-key", "the-bearer"):
        assert secret not in str(answer)
        assert secret not in caplog.text
        assert secret not in repr(held)


@pytest.mark.parametrize(
    ("header", "waits_s"),
    [
        (None, None),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("99999999999999999999", 3_600.0),
        ("Sun, 20 Sep 2026 15:07:10 GMT", 30.0),
        ("Sun, 20 Sep 2020 15:07:10 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("٣", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, waits_s: float | None) -> None:
    assert retry_after_s(header, lambda: 1_789_916_800.0) == waits_s


def test_retry_after_is_read_from_the_answer(receiver: Any, channel: Make) -> None:
    receiver.answers = [HttpReply(429, b"slow down", {"Retry-After": "11"})]
    assert ChannelPoster(channel(url=receiver.url))(POST) == ChannelResponse(429, "slow down", 11.0)


def test_a_proxy_of_the_environment_is_used(
    receiver: Any, channel: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", receiver.url)
    send = ChannelPoster(channel(url="http://hooks.example.org/x"))
    assert send(POST).status == 200
    assert receiver.got[0].path == "http://hooks.example.org/x"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ChannelPoster(channel(url=f"{receiver.url}/straight"))(POST).status == 200
    assert receiver.got[1].path == "/straight"


def test_the_proxy_gets_the_password_of_its_address(
    receiver: Any, channel: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = receiver.url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{address}")
    assert ChannelPoster(channel(url="http://hooks.example.org/x"))(POST).status == 200
    (got,) = receiver.got
    wanted = base64.b64encode(b"me:p@ss").decode()
    assert got.headers["proxy-authorization"] == f"Basic {wanted}"
