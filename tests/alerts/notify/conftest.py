import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.message import HeldBack, IncidentMessage, Transition, WindowPairBurnRates
from alerts.secrets import Secret
from rig.http_servers import HttpReply, HttpServer, ReceivedRequest, raw_server, running_http_server

FIRED_S = 1_790_000_000
TOKEN = "T0K3N-of-the-address"


@pytest.fixture
def message() -> Callable[..., IncidentMessage]:
    """Return a message about a continuing incident of severity `page`, with the given fields
    replaced."""

    def make(**about: Any) -> IncidentMessage:
        plain: dict[str, Any] = {
            "transition": Transition.FIRING,
            "slo": "chat",
            "display_name": "Chat answers start in 500 ms",
            "service": "chat",
            "severity": "page",
            "statement": "Objective: 99 % of requests with ttft_s <= 0.5 over 30d.",
            "began_unix_s": FIRED_S - 600,
            "fired_unix_s": FIRED_S,
            "as_of_unix_s": FIRED_S + 15,
            "burn": 21.53,
            "window_s": 3_600,
            "bad": 903,
            "events": 4_194,
            "peak_burn": 21.53,
            "budget_left": 0.872,
            "budget_spent": 0.031,
            "exhausted_in_s": 104_980.0,
            "fired_by": (WindowPairBurnRates(3_600, 300, 14.4, 21.53, 62.3),),
            "held_back": (
                HeldBack(WindowPairBurnRates(21_600, 1_800, 6.0, 9.9, 40.0), "cold_start"),
            ),
            "link": "https://tailspan.example.org/?last=1h&latency=ttft",
        }
        return IncidentMessage(**{**plain, **about})

    return make


@pytest.fixture
def channel() -> Callable[..., Channel]:
    def make(
        kind: ReceiverType = ReceiverType.WEBHOOK, url: str = f"http://127.0.0.1:9/{TOKEN}"
    ) -> Channel:
        return Channel(
            name=f"my-{kind}",
            kind=kind,
            severities=("page", "ticket"),
            url=Secret(url),
            key=Secret("the-key")
            if kind in (ReceiverType.WEBHOOK, ReceiverType.PAGERDUTY)
            else None,
        )

    return make


@dataclass
class Receiver:
    """A server that records the requests it receives.

    It sends `answers` in order and repeats the last one. Without answers, it sends status 200.
    """

    server: HttpServer
    answers: list[HttpReply] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def got(self) -> list[ReceivedRequest]:
        return self.server.received


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    def answer(_: ReceivedRequest) -> HttpReply:
        if len(here.answers) > 1:
            return here.answers.pop(0)
        return here.answers[0] if here.answers else HttpReply(body=b"ok")

    with running_http_server(answer) as server:
        here = Receiver(server)
        yield here


@pytest.fixture
def rude() -> Iterator[Callable[[str], str]]:
    """Return the addresses of servers that violate HTTP.

    `deaf` never responds, `closes` closes the connection, `babbles` sends bytes that are not HTTP,
    and `drips` sends an endless header one byte at a time.
    """
    with raw_server() as serve:

        def begin(manner: str) -> str:
            def answer(connection: socket.socket, _: bytes, ending: threading.Event) -> None:
                if manner == "babbles":
                    connection.sendall(b"220 mail.example.org ESMTP\r\n\r\n")
                elif manner == "deaf":
                    ending.wait(20)
                elif manner == "drips":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while not ending.wait(0.02):
                        connection.sendall(b"x")

            return serve(answer)

        yield begin


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the proxy variables, because the test servers are local."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
