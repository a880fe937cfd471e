import asyncio
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from cli import foreground
from server import children, kept_children, stack
from server.explorer_launch import Launch
from server.gpu_setup import GpuSetup
from server.stack import MOST_NAMED, Ports, Stack
from store.database import open_database
from telemetry.installing import install_plugin
from telemetry.requests import RequestTimeline
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import Card, Driver

install = gpus_of_tests.install
FREE = Ports(0, 0, 0, 0)
PATIENCE_S = 30.0


class Up:
    """A running Tailspan in this process, and what it has said."""

    def __init__(self, stack: Stack, said: list[str]) -> None:
        self.stack = stack
        self._said = said

    @property
    def said(self) -> str:
        """All of it."""
        return "\n".join(self._said)

    async def says(self, words: str) -> None:
        """Wait until it has said that."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.said:
            assert time.monotonic() < deadline, self.said
            await asyncio.sleep(0.01)

    async def serves(self) -> bool:
        """Whether it still does."""
        answer = await asyncio.to_thread(urllib.request.urlopen, self.stack.metrics_url, timeout=20)
        with answer:
            return bool(answer.status == 200)


@pytest.fixture
def up(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run Tailspan, do something with it, end it as Ctrl-C does; all that it said."""
    engine = open_database(url)
    said: list[str] = []
    monkeypatch.setattr(foreground, "say", lambda text, err=False: said.append(text))

    def play(
        play: Callable[[Up], Awaitable[None]], *, vllm: str | None = None, **about: Any
    ) -> str:
        async def run() -> None:
            stack = Stack(engine, url, "127.0.0.1", FREE, **{"explorer": False, **about})
            running_stack = asyncio.create_task(foreground.run(stack, vllm=vllm))
            up = Up(stack, said)
            try:
                await up.says("Ctrl-C stops it.")
                await play(up)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                await running_stack

        asyncio.run(run())
        return "\n".join(said)

    yield play
    engine.dispose()


@pytest.fixture
def explorer_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program in the explorer's place."""

    def put(code: str) -> None:
        command = (sys.executable, "-c", code)
        monkeypatch.setattr(stack, "launch", lambda **_: Launch(command, {}))

    return put


async def nothing(_: Up) -> None:
    """Stop at once."""


def test_it_says_where_everything_is_and_how_to_connect(up: Callable[..., str]) -> None:
    """In the order in which a newcomer needs it."""
    said = up(nothing)
    places = [
        said.index(words)
        for words in (
            "Tailspan is up.",
            "  Metrics    http://127.0.0.1:",
            "  OTLP       http://127.0.0.1:",
            "  Database   sqlite:///",
            install_plugin(),
            "export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:",
            "Ctrl-C stops it.",
            "Stopping …",
            "Stopped. 0 requests",
        )
    ]
    assert places == sorted(places)
    assert "Explorer" not in said
    assert "No GPU at hand" not in said  # a collector beside servers is not where one looks around


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "is healthy; waiting for its telemetry"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "health check (status 503 Busy)"),
        (b"\x1b[31m220 mail.example ESMTP\r\n", "health check (what answers does not speak HTTP"),
        (None, "health check (Connection refused)"),
    ],
)
def test_the_server_to_watch_is_looked_at(
    up: Callable[..., str],
    stranger: Callable[..., str],
    free_port: int,
    answer: bytes | None,
    words: str,
) -> None:
    """Whatever it says, it is waited for: it may be starting still."""
    vllm = stranger(answer) if answer is not None else f"http://127.0.0.1:{free_port}"
    said = up(nothing, vllm=vllm)
    assert words in said
    assert "waiting for it" in said
    assert "--host" not in said


def test_who_watches_another_machine_hears_that_it_cannot_reach_loopback(
    up: Callable[..., str],
) -> None:
    """Its telemetry would never arrive, and nothing would say why."""
    assert "start with --host 0.0.0.0" in up(nothing, vllm="http://gpu-host.invalid:8000")


def test_silence_is_told_with_how_to_connect(
    up: Callable[..., str], free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, once."""
    monkeypatch.setattr(foreground, "HEARD_NOTHING_S", 0.05)

    async def play(up: Up) -> None:
        await up.says("Nothing has come from http://127.0.0.1:")
        await up.says(install_plugin())

    up(play, vllm=f"http://127.0.0.1:{free_port}")


def test_a_server_that_is_heard_of_is_told_once(
    up: Callable[..., str], request_row: Callable[..., RequestTimeline]
) -> None:
    """A newcomer sees that it works; a name cannot write on the terminal as it likes."""

    async def play(up: Up) -> None:
        up.stack.arrivals.on_stored([request_row(replica="a"), request_row(replica="a")], [])
        await up.says("Telemetry arrives from a.")
        up.stack.arrivals.on_stored([request_row(replica="a"), request_row(replica="\x1b[2J")], [])
        await up.says(r"Telemetry arrives from \x1b[2J.")

    said = up(play)
    assert said.count("Telemetry arrives from a.") == 1
    assert "Stopped. 4 requests" in said


def test_servers_without_end_are_not_told_without_end(
    up: Callable[..., str], request_row: Callable[..., RequestTimeline]
) -> None:
    """The rest is summed up."""

    async def play(up: Up) -> None:
        up.stack.arrivals.on_stored([request_row(replica=f"r{n}") for n in range(100)], [])
        await up.says("There may be more servers")

    assert up(play).count("Telemetry arrives from") == MOST_NAMED


def test_an_explorer_that_dies_is_told_and_the_rest_goes_on(
    up: Callable[..., str], explorer_is: Callable[[str], None]
) -> None:
    """With its status, its last words, and where they stand."""
    explorer_is("import sys; sys.exit('no such page')")

    async def play(up: Up) -> None:
        await up.says("The explorer ended with status 1; the rest goes on.")
        assert await up.serves()

    said = up(play, explorer=True)
    assert "  Explorer   did not start; see " in said
    assert "explorer.log):\nno such page" in said


def test_a_child_that_dies_is_started_again_and_named_meanwhile(
    up: Callable[..., str], explorer_is: Callable[[str], None]
) -> None:
    """After a pause; until it answers, it is a part that fails."""
    explorer_is("import sys; sys.exit('no such page')")

    async def play(up: Up) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while up.said.count("The explorer ended with status 1") < 2:
            assert time.monotonic() < deadline, up.said
            await asyncio.sleep(0.05)
        assert "explorer (ChildEnded)" in up.stack.supervisor.degraded
        assert up.stack.supervisor.vital == []

    up(play, explorer=True)


def test_an_explorer_that_takes_its_time_is_told_where_it_will_be(
    up: Callable[..., str],
    explorer_is: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow machine is no failure."""
    monkeypatch.setattr(kept_children, "EXPLORER_START_S", 0.05)
    explorer_is("import signal; signal.pause()")
    assert "(does not answer yet; its log is " in up(nothing, explorer=True)


def test_a_simulation_is_called_one(
    up: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody is told to connect a server; a simulator that ends is told of, too."""
    command = (sys.executable, "-c", "print('simulated enough')")
    monkeypatch.setattr(children, "ourselves", lambda *_: command)

    async def play(up: Up) -> None:
        await up.says("The simulator ended with status 0; the rest goes on.")

    said = up(play, simulate=True)
    assert "The fleet is simulated" in said
    assert "pip install" not in said


def test_a_defect_in_the_talking_does_not_stop_the_collecting(
    up: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    request_row: Callable[..., RequestTimeline],
) -> None:
    """It is raised when all else has been stopped well."""
    monkeypatch.setattr(foreground, "label", lambda _: 1 // 0)

    async def play(up: Up) -> None:
        up.stack.arrivals.on_stored([request_row(replica="a")], [])
        assert await up.serves()

    with pytest.raises(ZeroDivisionError):
        up(play)


def test_gpus_that_are_sampled_are_told(
    up: Callable[..., str], install: Callable[..., Driver]
) -> None:
    """Once; a machine without one hears nothing of it."""
    install(Card(), Card("GPU-2"))

    async def wait(up: Up) -> None:
        await up.says("GPUs: 2 by nvml")

    assert up(wait, gpus=GpuSetup(local=True)).count("GPUs:") == 1
