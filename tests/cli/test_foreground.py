import asyncio
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.notify.configuration import load_configuration
from cli import foreground
from server import children, stack, supervised_children
from server.explorer_launch import Launch
from server.gpu_setup import GpuSetup
from server.stack import MAX_NAMED, Ports, Stack
from store.database import open_database
from telemetry.installing import install_plugin
from telemetry.requests import RequestTimeline
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import Card, Driver

RunUp = Callable[..., str]
Row = Callable[..., RequestTimeline]


install = gpus_of_tests.install
FREE = Ports(0, 0, 0, 0)
PATIENCE_S = 30.0


class Up:
    def __init__(self, stack: Stack, printed: list[str]) -> None:
        self.stack = stack
        self._printed = printed

    @property
    def printed(self) -> str:
        return "\n".join(self._printed)

    async def waits_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.printed:
            assert time.monotonic() < deadline, self.printed
            await asyncio.sleep(0.01)

    async def serves(self) -> bool:
        answer = await asyncio.to_thread(urllib.request.urlopen, self.stack.metrics_url, timeout=20)
        with answer:
            return bool(answer.status == 200)


@pytest.fixture
def up(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Return a function that runs Tailspan with an action, and returns the output.

    After the action, Tailspan stops as with Ctrl-C.
    """
    engine = open_database(url)
    printed: list[str] = []
    monkeypatch.setattr(foreground, "print_line", lambda text, err=False: printed.append(text))

    def play(
        play: Callable[[Up], Awaitable[None]], *, vllm: str | None = None, **about: Any
    ) -> str:
        async def run() -> None:
            stack = Stack(engine, url, "127.0.0.1", FREE, **{"explorer": False, **about})
            running_stack = asyncio.create_task(foreground.run(stack, vllm=vllm))
            up = Up(stack, printed)
            try:
                await up.waits_for("Ctrl-C stops it.")
                await play(up)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                await running_stack

        asyncio.run(run())
        return "\n".join(printed)

    yield play
    engine.dispose()


@pytest.fixture
def explorer_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def put(code: str) -> None:
        command = (sys.executable, "-c", code)
        monkeypatch.setattr(stack, "launch", lambda **_: Launch(command, {}))

    return put


async def nothing(_: Up) -> None:
    """Do nothing, so that Tailspan stops at once."""


def test_up_prints_all_addresses_and_how_to_connect(up: RunUp) -> None:
    printed = up(nothing)
    places = [
        printed.index(words)
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
    assert "Explorer" not in printed
    assert "No GPU at hand" not in printed  # `collect` runs beside servers, not for a first look


def test_up_waits_for_the_server_to_watch(up: RunUp, stranger: Callable[..., str]) -> None:
    healthy = stranger(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    printed = up(nothing, vllm=healthy)
    assert "is healthy; waiting for its telemetry" in printed
    assert "--host" not in printed


def test_watching_another_machine_warns_that_it_cannot_reach_loopback(up: RunUp) -> None:
    assert "start with --host 0.0.0.0" in up(nothing, vllm="http://gpu-host.invalid:8000")


@pytest.mark.parametrize(
    ("explorer_url", "warned"), [(None, True), ("https://tailspan.example.org", False)]
)
def test_links_that_work_only_on_this_machine_are_announced(
    up: RunUp,
    explorer_is: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    explorer_url: str | None,
    warned: bool,
) -> None:
    monkeypatch.setattr(supervised_children, "EXPLORER_START_S", 0.05)
    explorer_is("import signal; signal.pause()")
    file = tmp_path / "notify.yaml"
    channel = '{name: hook, type: webhook, url: "http://127.0.0.1:1/"}'
    file.write_text(f"channels: [{channel}]\n")
    notify = replace(load_configuration(file, {}), explorer_url=explorer_url)
    printed = up(nothing, explorer=True, notify=notify)
    assert ("Notifications link to http://127.0.0.1:" in printed) == warned


def test_silence_is_reported_once_with_how_to_connect(
    up: RunUp, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreground, "NO_TELEMETRY_S", 0.05)

    async def play(up: Up) -> None:
        await up.waits_for("health check (Connection refused)")
        await up.waits_for("No telemetry has arrived from http://127.0.0.1:")
        await up.waits_for(install_plugin())

    assert "waiting for it" in up(play, vllm=f"http://127.0.0.1:{free_port}")


def test_the_first_telemetry_of_a_server_is_reported_once(up: RunUp, request_row: Row) -> None:
    async def play(up: Up) -> None:
        arrivals = up.stack.arrivals
        arrivals.on_stored([request_row(replica="a"), request_row(replica="a")], [])
        await up.waits_for("Telemetry arrives from a.")
        arrivals.on_stored([request_row(replica="a"), request_row(replica="\x1b[2J")], [])
        await up.waits_for(r"Telemetry arrives from \x1b[2J.")
        arrivals.on_stored([request_row(replica=f"r{n}") for n in range(100)], [])
        await up.waits_for("Messages about further servers")

    printed = up(play)
    assert printed.count("Telemetry arrives from a.") == 1
    assert printed.count("Telemetry arrives from") == MAX_NAMED
    assert "Stopped. 104 requests" in printed


def test_a_dead_explorer_is_reported_and_restarted_and_the_other_parts_continue(
    up: RunUp, explorer_is: Callable[[str], None]
) -> None:
    explorer_is("import sys; sys.exit('no such page')")

    async def play(up: Up) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while up.printed.count("The explorer ended with status 1 and is restarted.") < 2:
            assert time.monotonic() < deadline, up.printed
            await asyncio.sleep(0.05)
        assert await up.serves()
        assert "explorer (ChildEnded)" in up.stack.supervisor.degraded
        assert up.stack.supervisor.vital == []

    printed = up(play, explorer=True)
    assert "  Explorer   did not start; see " in printed
    assert "explorer.log):\nno such page" in printed


def test_a_slow_explorer_is_announced_with_its_address(
    up: RunUp, explorer_is: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised_children, "EXPLORER_START_S", 0.05)
    explorer_is("import signal; signal.pause()")
    assert "(not ready yet; its log is " in up(nothing, explorer=True)


def test_a_simulation_is_announced(up: RunUp, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-c", "print('simulated enough')")
    monkeypatch.setattr(children, "own_command", lambda *_: command)

    async def play(up: Up) -> None:
        await up.waits_for("The simulator ended with status 0 and is restarted.")

    printed = up(play, simulate=True)
    assert "The fleet is simulated" in printed
    assert "pip install" not in printed


def test_a_defect_in_the_output_does_not_stop_the_collector(
    up: RunUp, monkeypatch: pytest.MonkeyPatch, request_row: Row
) -> None:
    """The exception is raised after all other parts have stopped."""
    monkeypatch.setattr(foreground, "label", lambda _: 1 // 0)

    async def play(up: Up) -> None:
        up.stack.arrivals.on_stored([request_row(replica="a")], [])
        assert await up.serves()

    with pytest.raises(ZeroDivisionError):
        up(play)


def test_sampled_gpus_are_announced_once(up: RunUp, install: Callable[..., Driver]) -> None:
    install(Card(), Card("GPU-2"))

    async def wait(up: Up) -> None:
        await up.waits_for("GPUs: 2 by nvml")

    assert up(wait, gpus=GpuSetup(local=True)).count("GPUs:") == 1
