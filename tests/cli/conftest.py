"""A database with known requests, and the command to ask it with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from store.database import open_database
from store.writer import Writer
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

START_S = 1_763_634_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database that is not there yet."""
    return f"sqlite:///{tmp_path}/tailspan.db"


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    """A request by its number, one a second; with what the test is about."""

    def make(number: int = 0, **about: Any) -> RequestTimeline:
        plain: dict[str, Any] = {
            "trace_id": f"{number:032x}",
            "span_id": f"{number:016x}",
            "request_id": f"chatcmpl-{number}",
            "received_unix_ns": (START_S + number) * 1_000_000_000,
            "e2e_s": 1.5,
            "outcome": Outcome.STOP,
            "source": Source.INSTRUMENTATION,
            "basis": Basis.HTTP,
        }
        return RequestTimeline(**{**plain, **about})

    return make


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
