import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from analysis.counterfactual import replay_process
from cli.main import tailspan
from collector.testing import background_loop
from server.stack import Ports, Stack
from store.database import open_database
from store.writer import Writer
from tests.conftest import a_request
from tests.replaying import answer_here

START_S = 1_763_634_000


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs `tailspan` on the first ten minutes of the database.

    Causes are replayed in this process.
    """
    monkeypatch.setattr(replay_process, "answer_in_child", answer_here)

    def invoke(*words: str, window: bool = True) -> Result:
        about = ["--from", str(START_S), "--to", str(START_S + 600)] if window else []
        result = CliRunner().invoke(
            tailspan, [*words, *about, "--database", url], catch_exceptions=False
        )
        assert result.exit_code in (0, 1, 2)
        return result

    return invoke


@pytest.fixture(scope="session")
def queued_databases(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that stores the requests of `queued` once per session, in a new SQLite
    database, and returns its file."""
    folder, known = tmp_path_factory.mktemp("queued"), dict[str, Path]()

    def stored(waited_s: float, **about: Any) -> Path:
        key = repr((waited_s, sorted(about.items())))
        if key not in known:
            file = folder / f"{len(known)}.db"
            store_queued(f"sqlite:///{file}", waited_s, **about)
            known[key] = file
        return known[key]

    return stored


@pytest.fixture
def queued(url: str, queued_databases: Callable[..., Path]) -> Callable[..., None]:
    """Return a function that stores 400 requests before `START_S`, and 400 requests after it that
    wait in the queue."""

    def put(waited_s: float, **about: Any) -> None:
        file = Path(url.removeprefix("sqlite:///"))
        if file.exists():
            store_queued(url, waited_s, **about)
        else:
            shutil.copy(queued_databases(waited_s, **about), file)

    return put


def store_queued(url: str, waited_s: float, **about: Any) -> None:
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
        rows.append(a_request(number, **{**common, **about}))
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    engine.dispose()


@pytest.fixture
def exported(
    stranger: Callable[..., str], http_answer: Callable[..., bytes]
) -> Callable[[str], tuple[str, int]]:
    """Return a function that serves these metrics like Tailspan, and returns host and port."""

    def serve(metrics: str) -> tuple[str, int]:
        address = urlsplit(stranger({"/metrics": http_answer(body=metrics)}))
        assert address.hostname is not None
        assert address.port is not None
        return address.hostname, address.port

    return serve


@pytest.fixture
def tailspan_of(url: str) -> Iterator[Callable[..., list[str]]]:
    """Return a function that starts Tailspan and returns the options with its addresses."""
    engine = open_database(url)
    with ExitStack() as running:
        loop = running.enter_context(background_loop())

        def wait(step: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(step, loop).result(30)

        def start(**about: Any) -> list[str]:
            stack = Stack(engine, url, "127.0.0.1", Ports(0, 0, 0, 0), explorer=False, **about)
            wait(stack.__aenter__())
            running.callback(lambda: wait(stack.__aexit__(None, None, None)))
            return [
                f"--grpc-port={stack.collector.grpc_port}",
                f"--http-port={stack.collector.http_port}",
                f"--metrics-port={stack.metrics.port}",
                "--no-explorer",
            ]

        yield start
    engine.dispose()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], Mapping[str, str]]]:
    seen: list[tuple[Sequence[str], Mapping[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, env: seen.append((command, env)))
    return seen
