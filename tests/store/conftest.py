"""Fixtures for the tests of the store: databases and rows."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url

from rig.clickhouse import ClickHouses
from rig.postgresql import PostgreSQL
from store import dialects
from store.database import open_database
from store.dialects import sqlite as sqlite_dialect
from store.migrations import STATE, TELEMETRY, Schema, upgrade_schema
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
    shutil.copyfile(empty_database, make_url(url).database or "")
    engine = open_database(url, busy_timeout_s=0.05)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def clickhouses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouses]:
    pytest.importorskip("chdb", reason="there is no chdb: pip install '.[chdb]'")
    made = ClickHouses(tmp_path_factory.mktemp("chdb"))
    yield made
    made.close()


SQL = ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)]
ALL = [*SQL, pytest.param("clickhouse", marks=pytest.mark.real)]


class Databases:
    """Makes databases of one kind: SQLite, PostgreSQL or ClickHouse. A call returns the URL of an
    empty one."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, kind: str) -> None:
        self._request = request
        self._folder = folder
        self._kind = kind
        self._numbers = itertools.count()

    def __call__(self) -> str:
        if self._kind == "sqlite":
            return f"sqlite:///{self._folder}/{next(self._numbers)}/tailspan.db"
        return self._clickhouses.new() if self._kind == "clickhouse" else self._postgresql.new_url()

    def with_schemas(self, name: str, *schemas: Schema) -> str:
        """Return the URL of a database with tables, but without rows. This is faster than to
        create the tables.

        Args:
            name: a name for these schemas.
        """

        def create(url: str) -> None:
            parsed = make_url(url)
            dialect = dialects.named(parsed.get_backend_name())
            assert dialect is not None
            engine = dialect.connect(parsed, create=True, timeout_s=30)
            for schema in schemas:
                upgrade_schema(engine, url, print, schema)
            engine.dispose()

        if self._kind == "clickhouse":
            return self._clickhouses.shared(name, create)
        if self._kind == "postgresql":
            return self._postgresql.copy(name, create)
        url = self()
        if name == "whole":
            path = Path(url.removeprefix("sqlite:///"))
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._request.getfixturevalue("empty_database"), path)
        return url

    @property
    def _clickhouses(self) -> ClickHouses:
        found: ClickHouses = self._request.getfixturevalue("clickhouses")
        return found

    @property
    def _postgresql(self) -> PostgreSQL:
        found: PostgreSQL = self._request.getfixturevalue("postgresql")
        return found


@pytest.fixture(params=ALL)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Databases:
    """Makes the URL of a new database, for each kind in turn. Tests with this fixture or `engine`
    define the behaviour of every database."""
    return Databases(request, tmp_path, request.param)


@pytest.fixture(params=SQL)
def new_sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> Databases:
    """Makes the URL of a new database, for each kind with revisions."""
    return Databases(request, tmp_path, request.param)


SEPARATE = [
    pytest.param("sqlite/sqlite"),
    pytest.param("postgresql/postgresql", marks=pytest.mark.real),
    pytest.param("clickhouse/postgresql", marks=pytest.mark.real),
    pytest.param("clickhouse/sqlite", marks=pytest.mark.real),
]
"""Kinds of the telemetry database and of its separate state database."""


def _separate(request: pytest.FixtureRequest, folder: Path) -> tuple[Databases, Databases]:
    telemetry, state = request.param.split("/")
    return (
        Databases(request, folder / "telemetry", telemetry),
        Databases(request, folder / "state", state),
    )


@pytest.fixture(params=SEPARATE)
def separate_urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URLs of a new database and of a new state database, for each pair."""
    telemetry, state = _separate(request, tmp_path)
    return telemetry(), state()


@pytest.fixture
def engine(new_url: Databases) -> Iterator[Engine]:
    """An empty database of each kind."""
    engine = open_database(new_url.with_schemas("whole", TELEMETRY, STATE))
    yield engine
    engine.dispose()


# No query joins telemetry and state, so ClickHouse needs only one kind of state database.
@pytest.fixture(params=[*ALL, *SEPARATE[:-1]])
def with_state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database of each kind, with its state inside or separate."""
    if "/" in request.param:
        telemetry, state = _separate(request, tmp_path)
        engine = open_database(
            telemetry.with_schemas("telemetry", TELEMETRY), state.with_schemas("state", STATE)
        )
    else:
        databases = Databases(request, tmp_path, request.param)
        engine = open_database(databases.with_schemas("whole", TELEMETRY, STATE))
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
