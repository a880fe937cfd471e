"""Databases and rows for the store's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

START_NS = 1_763_634_000_000_000_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database that is not there yet."""
    return f"sqlite:///{tmp_path}/tailspan.db"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An empty database; it gives up on another's lock at once."""
    engine = open_database(url, busy_timeout_s=0.05)
    yield engine
    engine.dispose()


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    """A request by its number, one a second; with what the test is about."""

    def make(number: int = 0, **about: Any) -> RequestTimeline:
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

    return make


@pytest.fixture
def sample_row() -> Callable[..., EngineSample]:
    """An engine sample by its number, one a second; with what the test is about."""

    def make(number: int = 0, **about: Any) -> EngineSample:
        plain: dict[str, Any] = {
            "replica": "a",
            "engine": 0,
            "process": 7,
            "at_unix_ns": START_NS + number * 1_000_000_000,
            "started_unix_ns": START_NS,
        }
        return EngineSample(**{**plain, **about})

    return make


@pytest.fixture
def write(engine: Engine) -> Callable[..., None]:
    """Write requests and samples, and wait for the commit."""

    def commit(*rows: RequestTimeline | EngineSample) -> None:
        with Writer(engine) as writer:
            writer.submit(
                [row for row in rows if isinstance(row, RequestTimeline)],
                [row for row in rows if isinstance(row, EngineSample)],
            ).result(10)

    return commit
