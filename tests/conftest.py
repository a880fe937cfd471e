"""Shared fixtures: a browser, PostgreSQL, requests."""

import gc
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from sqlalchemy import Engine
from sqlalchemy.util import LRUCache
from tailspan_vllm import names
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from rig import ports
from rig.http_servers import raw_server
from rig.install import ProgramUnavailableError
from rig.postgresql import PostgreSQL
from store import database
from store.columns.adbc_client import ColumnReader
from store.database import open_database
from store.writer import Writer
from telemetry.database_urls import default_url
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

EXAMPLES = int(os.environ.get("EXAMPLES", "50"))
"""Examples per property test. Every run draws new examples, except in CI.

Before a release, run `EXAMPLES=500 make test`.
"""

# The time of an example depends on the machine, so there is no deadline.
settings.register_profile(
    "tailspan",
    deadline=None,
    max_examples=EXAMPLES,
    # The result of CI must depend on the commit alone.
    derandomize="CI" in os.environ,
)
settings.load_profile("tailspan")

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 120_000

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

START_NS = 1_763_634_000_000_000_000
"""The time of receipt of the first request."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector while pytest collects tests, because it would free no
    object."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a running browser for one module.

    playwright runs an event loop in this thread, which can run no other loop at the same time.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Callable[..., Any]]:
    contexts: list[Any] = []

    def open_tab(**options: Any) -> Any:
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        return context.new_page()

    yield open_tab
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Return a running PostgreSQL. A test that stops it must start it again."""
    try:
        server = PostgreSQL()
    except ProgramUnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        yield server


def a_request(number: int = 0, **about: Any) -> RequestTimeline:
    """Return a request that is received `number` seconds after `START_NS`."""
    plain: dict[str, Any] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "request_id": f"chatcmpl-{number}",
        "received_unix_ns": START_NS + number * 1_000_000_000,
        "e2e_s": 1.5,
        "outcome": Outcome.STOP,
        "source": Source.INSTRUMENTATION,
        "basis": Basis.HTTP,
    }
    return RequestTimeline(**{**plain, **about})


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let predictions, sweeps and replays of a trace compute their intervals from four resampled
    replays."""
    from analysis import trace_prediction, what_if, what_if_search

    for function in (what_if.predict, what_if_search.sweep, trace_prediction.predict_trace):
        draws, progress = function.__defaults__ or ()
        assert draws == what_if.RESAMPLED
        monkeypatch.setattr(function, "__defaults__", (4, progress))


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    return a_request


class _SharedColumnReader(ColumnReader):
    """A reader of columns that, when it is closed, passes its process to the reader of the next
    database. Starting a process takes long."""

    waiting: ClassVar[list["_SharedColumnReader"]] = []

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                left = _SharedColumnReader(self._path)
                left._process, left._channel = self._process, self._channel
                self._process = self._channel = None
                self.waiting.append(left)

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        while self._process is None and self.waiting:
            left = self.waiting.pop()
            if left._process is not None and left._process.poll() is None:
                self._process, self._channel = left._process, left._channel
            else:
                left._end()
        return super()._started()


class _CompiledStatements(LRUCache[tuple[Any, ...], Any]):
    """Compiled SQL statements that all SQLite databases of this process share. SQLAlchemy's own
    cache belongs to one database, and compiling takes a fifth of the CPU time of a page test."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(self._without_dialect(key), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(self._without_dialect(key), compiled)

    @staticmethod
    def _without_dialect(key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key without its first part, the dialect object of the database."""
        return key[1:]


_COMPILED = _CompiledStatements(2_000)


@pytest.fixture(scope="session")
def column_processes() -> Iterator[None]:
    yield
    for left in _SharedColumnReader.waiting:
        left._end()
    _SharedColumnReader.waiting.clear()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of a test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite database without rows."""
    file = tmp_path_factory.mktemp("empty") / "tailspan.db"
    open_database(f"sqlite:///{file}").dispose()
    return file


@pytest.fixture(autouse=True)
def databases_open_quickly(
    request: pytest.FixtureRequest,
    column_processes: None,
    empty_database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Make all tests faster, except the tests of the store: reuse the processes that read columns
    and the compiled SQL, copy the schema of new SQLite databases, and do not wait for the disk."""
    if request.path.is_relative_to(Path(__file__).parent / "store"):
        return
    monkeypatch.setattr("store.dialects.sqlite.ColumnReader", _SharedColumnReader)
    monkeypatch.setattr("store.dialects.sqlite.SYNCHRONOUS", "OFF")
    opened = database._opened

    def copied(url: str | None, state_url: str | None, create: bool, *more: Any) -> Engine:
        if create and not state_url:
            file = database.database_file(default_url() if url is None else url)
            if file and file.parent.is_dir() and not file.exists():
                with suppress(OSError):  # the database cannot be created, and the test expects it
                    shutil.copy(empty_database, file)
        engine = opened(url, state_url, create, *more)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=_COMPILED)
        return engine

    monkeypatch.setattr(database, "_opened", copied)


@pytest.fixture(scope="session", autouse=True)
def default_sighup() -> Iterator[None]:
    """Restore the default action of SIGHUP, because processes under nohup ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def stranger() -> Iterator[Callable[..., str]]:
    """Return a function that serves fixed bytes on a free port, and returns the address.

    The bytes can be a dict with the bytes of each path. With the manner `drip`, the server then
    sends one more byte every 10 ms. With the manner `deaf`, it never responds.
    """
    with raw_server() as serve:

        def begin(answers: dict[str, bytes] | bytes = b"", manner: str = "whole") -> str:
            def answer(connection: socket.socket, asked: bytes, ending: threading.Event) -> None:
                if manner == "deaf":
                    ending.wait(30)
                    return
                path = [*asked.split(b" "), b""][1].decode()
                text = answers.get(path, NOT_FOUND) if isinstance(answers, dict) else answers
                connection.sendall(text)
                while manner == "drip" and not ending.wait(0.01):
                    connection.sendall(b"x")

            return serve(answer)

        yield begin


@pytest.fixture
def http_answer() -> Callable[..., bytes]:
    def make(status: int = 200, reason: str = "OK", body: str = "", *headers: str) -> bytes:
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}", *headers]
        return "\r\n".join([*head, "", body]).encode()

    return make


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def span(request_record: Callable[..., RequestRecord]) -> Callable[..., ReadableSpan]:
    def make(replica: str = "replica-1", **about: Any) -> ReadableSpan:
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: replica})
        return span_of(request_record(**about), resource)

    return make


@pytest.fixture
def request_record() -> Callable[..., RequestRecord]:
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
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tailspan.db"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()


@pytest.fixture
def fill(url: str) -> Iterator[Callable[..., None]]:
    engine = open_database(url)

    def commit(*rows: RequestTimeline) -> None:
        with Writer(engine) as writer:
            writer.submit(rows, []).result(10)

    yield commit
    engine.dispose()
