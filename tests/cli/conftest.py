"""A database with known requests, and the command to ask it with."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from tailspan_vllm import names
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of

from cli.main import tailspan
from rig import ports
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline

START_S = 1_763_634_000
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(scope="session", autouse=True)
def hang_ups_are_heard() -> Iterator[None]:
    """Also where the tests were started by nohup, whose deafness the commands would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database that is not there yet."""
    return f"sqlite:///{tmp_path}/tailspan.db"


@pytest.fixture
def fill(url: str) -> Iterator[Callable[..., None]]:
    """Put requests into the database."""
    engine = open_database(url)

    def commit(*rows: RequestTimeline) -> None:
        with Writer(engine) as writer:
            writer.submit(rows, []).result(10)

    yield commit
    engine.dispose()


@pytest.fixture
def run(url: str) -> Callable[..., Result]:
    """Run `tailspan` on the database, about the first ten minutes of its requests."""

    def invoke(*words: str, window: bool = True) -> Result:
        about = ["--from", str(START_S), "--to", str(START_S + 600)] if window else []
        result = CliRunner().invoke(
            tailspan, [*words, *about, "--database", url], catch_exceptions=False
        )
        assert result.exit_code in (0, 1, 2)
        return result

    return invoke


@pytest.fixture
def stranger() -> Iterator[Callable[..., str]]:
    """Serve fixed bytes to whoever connects, on a port of its own; its address.

    By path where a dict is given. `drip` sends a byte at a time, until nobody listens;
    `deaf` accepts and never answers.
    """
    ending = threading.Event()
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket, said: dict[str, bytes] | bytes, manner: str) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            asked = connection.recv(65_536).split(b" ")
            if manner == "deaf":
                ending.wait(30)
                return
            path = asked[1].decode() if len(asked) > 1 else ""
            text = said.get(path, NOT_FOUND) if isinstance(said, dict) else said
            connection.sendall(text)
            while manner == "drip" and not ending.wait(0.01):
                connection.sendall(b"x")

    def serve(said: dict[str, bytes] | bytes = b"", manner: str = "whole") -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(0.05)

        def run() -> None:
            with listening:
                while not ending.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection, _ = listening.accept()
                        each = threading.Thread(target=answer, args=(connection, said, manner))
                        each.start()
                        threads.append(each)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    ending.set()
    for thread in threads:
        thread.join(20)


@pytest.fixture
def http_answer() -> Callable[..., bytes]:
    """An HTTP answer as bytes."""

    def make(status: int = 200, reason: str = "OK", body: str = "", *headers: str) -> bytes:
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}", *headers]
        return "\r\n".join([*head, "", body]).encode()

    return make


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    return ports.free_port()


@pytest.fixture
def span(request_record: Callable[..., RequestRecord]) -> Callable[..., ReadableSpan]:
    """The span of a request that ended just now."""

    def make(replica: str = "replica-1", **about: Any) -> ReadableSpan:
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: replica})
        return span_of(request_record(**about), resource)

    return make


@pytest.fixture
def request_record() -> Callable[..., RequestRecord]:
    """A request that ended just now, as the instrumentation sees it."""

    def make(**about: Any) -> RequestRecord:
        now = time.monotonic()
        plain: dict[str, Any] = {
            "received": now - 1.5,
            "queued": now - 1.4,
            "scheduled": now - 1.3,
            "first_token": now - 1.0,
            "last_token": now - 0.1,
            "delivered": now,
            "wall_offset_ns": time.time_ns() - time.monotonic_ns(),
            "outcome": "stop",
            "basis": "http",
            "output_tokens": 10,
        }
        return RequestRecord(**{**plain, **about})

    return make


@pytest.fixture
def queued(
    fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> Callable[..., None]:
    """Four hundred requests each before and after the start; the later wait so long for blocks."""

    def put(waited_s: float, **about: Any) -> None:
        rows = []
        for number in range(800):
            late = waited_s if number >= 400 else 0.0
            common: dict[str, Any] = {
                "request_id": f"chatcmpl-{number}",
                "replica": "r0",
                "tenant": ("acme", "globex")[number % 2],
                "streamed": True,
                "frontend_s": 0.01,
                "queue_s": late,
                **dict.fromkeys(
                    ("queue_seats_s", "queue_budget_s", "queue_held_s", "queue_step_s"), 0.0
                ),
                "queue_kv_s": late,
                "prefill_s": 0.05,
                "decode_s": 0.5,
                "delivery_s": 0.01,
                "ttft_s": 0.07 + late + 0.001 * (number % 10),
                "e2e_s": 0.57 + late,
                "prompt_tokens": 100 + number % 50,
                "output_tokens": 20,
            }
            common["received_unix_ns"] = (START_S - 600) * 10**9 + number * 15 * 10**8
            rows.append(request_row(number, **{**common, **about}))
        fill(*rows)

    return put
