"""Fixtures for the tests of the store: databases and rows."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from rig.clickhouse import ClickHouses
from rig.postgresql import PostgreSQL
from store.database import open_database
from store.dialects import sqlite as sqlite_dialect
from store.writer import Writer
from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

START_NS = 1_763_634_000_000_000_000
SUBMITTED = (
    *(RequestTimeline, EngineSample, EngineStart, GpuSample, InFlightRequest, Probe),
    *(ApplicationOperation, CacheLookup, ColdStart),
)
"""In the order of the arguments of `Writer.submit`."""


SYNCHRONOUS = sqlite_dialect.SYNCHRONOUS


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, and waiting for the disk is most of a commit's time."""
    monkeypatch.setattr(sqlite_dialect, "SYNCHRONOUS", "OFF")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tailspan.db"


@pytest.fixture
def sqlite(url: str, empty_database: Path) -> Iterator[Engine]:
    """An empty SQLite database that does not wait for a lock."""
    engine = open_database(_with_schema(url, empty_database), busy_timeout_s=0.05)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def clickhouses(tmp_path_factory: pytest.TempPathFactory) -> ClickHouses:
    pytest.importorskip("chdb", reason="there is no chdb: pip install '.[chdb]'")
    return ClickHouses(tmp_path_factory.mktemp("chdb"))


SQL = ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)]
ALL = [*SQL, pytest.param("clickhouse", marks=pytest.mark.real)]


@pytest.fixture(params=ALL)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes the URL of a new database, for each kind in turn. Tests with this fixture or `engine`
    define the behaviour of every database."""
    return _maker(request, tmp_path, request.param)


@pytest.fixture(params=SQL)
def new_sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes the URL of a new database, for each kind with revisions."""
    return _maker(request, tmp_path, request.param)


def _maker(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Callable[[], str]:
    numbers = itertools.count()
    if kind == "sqlite":
        return lambda: f"sqlite:///{tmp_path}/{next(numbers)}/tailspan.db"
    if kind == "clickhouse":
        clickhouses: ClickHouses = request.getfixturevalue("clickhouses")
        return clickhouses.new
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_url


SEPARATE = [
    pytest.param("sqlite/sqlite"),
    pytest.param("postgresql/postgresql", marks=pytest.mark.real),
    pytest.param("clickhouse/postgresql", marks=pytest.mark.real),
    pytest.param("clickhouse/sqlite", marks=pytest.mark.real),
]
"""Kinds of the telemetry database and of its separate state database."""


@pytest.fixture(params=SEPARATE)
def separate_urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URLs of a new database and of a new state database, for each pair."""
    return _separate(request, tmp_path, request.param)


def _separate(request: pytest.FixtureRequest, tmp_path: Path, kinds: str) -> tuple[str, str]:
    telemetry, state = kinds.split("/")
    return (
        _maker(request, tmp_path / "telemetry", telemetry)(),
        _maker(request, tmp_path / "state", state)(),
    )


@pytest.fixture
def engine(new_url: Callable[[], str], empty_database: Path) -> Iterator[Engine]:
    """An empty database of each kind."""
    engine = open_database(_with_schema(new_url(), empty_database))
    yield engine
    engine.dispose()


def _with_schema(url: str, empty_database: Path) -> str:
    """Faster than to create it."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(empty_database, path)
    return url


@pytest.fixture(params=[*ALL, *SEPARATE])
def with_state(
    request: pytest.FixtureRequest, tmp_path: Path, empty_database: Path
) -> Iterator[Engine]:
    """An empty database of each kind, with its state inside or separate."""
    if "/" in request.param:
        engine = open_database(*_separate(request, tmp_path, request.param))
    else:
        engine = open_database(
            _with_schema(_maker(request, tmp_path, request.param)(), empty_database)
        )
    yield engine
    engine.dispose()


@pytest.fixture
def sample_row() -> Callable[..., EngineSample]:
    """Makes engine samples by number, one per second."""

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
def gpu_row() -> Callable[..., GpuSample]:
    """Makes GPU samples by number, one per second."""

    def make(number: int = 0, **about: Any) -> GpuSample:
        plain: dict[str, Any] = {
            "replica": "a",
            "gpu": "0",
            "at_unix_ns": START_NS + number * 1_000_000_000,
        }
        return GpuSample(**{**plain, **about})

    return make


@pytest.fixture
def write(engine: Engine) -> Callable[..., None]:
    """Commits rows of any types."""

    def commit(*rows: Any) -> None:
        put(engine, *rows)

    return commit


def put(engine: Engine, *rows: Any) -> None:
    """Commits rows of any types in one transaction."""
    arguments: Any = [[row for row in rows if isinstance(row, kind)] for kind in SUBMITTED]
    with Writer(engine) as writer:
        writer.submit(*arguments).result(30)
