"""PostgreSQL through psycopg 3.

Rows are copied into a temporary table with COPY, and then inserted with ON CONFLICT DO NOTHING.
Rows are read in the binary format. These methods are the fastest (docs/decisions/014).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import pyarrow as pa
from psycopg.adapt import Buffer, Dumper
from psycopg.conninfo import make_conninfo
from psycopg.pq import Format
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    Table,
    create_engine,
    delete,
    event,
)
from sqlalchemy.dialects.postgresql import insert

from store.dialects import postgresql_days as by_day
from store.dialects.bulk import IN_BULK, Insert
from store.errors import NotQuick
from store.schema import BY_DAY
from telemetry.tasks import Task

DRIVERS: tuple[str, ...] = ("postgresql+psycopg", "postgresql")
ADDITIVE: bool = False
SINGLE_WRITER: bool = False
LEASES: bool = True
READERS: int = 1

OPTIONS: Final = (
    *("application_name", "host", "options", "port", "sslcert", "sslcrl", "sslkey", "sslmode"),
    *("sslrootcert", "target_session_attrs"),
)
"""Allowed query parameters of the URL. They are printed, so a password is not allowed."""

_UNANSWERED_MS: Final = 15_000

_LOCK_MS: Final = 30_000
"""Maximum wait for a different process's upgrade or for a reader's long query."""

_SESSION: Final = {
    # JIT compilation took 161 ms of the 167 ms of a query of rollups.
    "jit": "off",
    # End the transaction of a collector that was stopped (SIGSTOP), because its row locks block
    # other collectors.
    "idle_in_transaction_session_timeout": "15s",
    # `NOT IN (SELECT …)` uses a hash table only if it is expected to fit into work_mem times this
    # factor. With a hash table, reading a minute of 400,000 requests per hour takes 0.2 s.
    # Without it, reading takes 15.8 s.
    "hash_mem_multiplier": "1000",
}
"""Settings of each connection. The URL's `options` take precedence."""

_LOCK: Final = 0x7461696C
"""Number of Tailspan's advisory lock: "tail" in ASCII."""

_VERSION: Final = (
    "hashtextextended(concat_ws(' ', 'tailspan', current_schema(), %s::text, %s::text), 0)"
)
"""SQL for the number of the advisory lock of one version of Tailspan. The number depends on the
schema's name, because all schemas of a database share the advisory locks."""


class _Text(Dumper):
    """Replaces NUL in text by U+FFFD. With a NUL, the whole batch would fail."""

    oid = psycopg.postgres.types["text"].oid

    def dump(self, obj: Any) -> Buffer:
        return obj.replace("\0", "\ufffd").encode()  # type: ignore[no-any-return]


def refusal(url: URL) -> str | None:
    """Refuse a URL without a database, or with an unknown option."""
    if not url.database:
        return "the URL has no database name"
    if unknown := sorted(set(url.query) - set(OPTIONS)):
        return f"unknown option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}"
    return None


def name(url: URL) -> str:
    """The URL without its password and options."""
    return url.difference_update_query(url.query).render_as_string(hide_password=True)


def folder(url: URL) -> Path:
    """Return `var`, because the database is on a server."""
    return Path("var")


def file(url: URL) -> None:
    """Return None, because the database is on a server."""


def connect(url: URL, *, create: bool, timeout_s: float) -> Engine:
    """Return an engine for a database that exists on the server."""
    engine = create_engine(
        url.set(drivername=DRIVERS[0]),
        pool_pre_ping=True,  # a server restart closes all connections
        connect_args={
            "application_name": "tailspan",
            "connect_timeout": max(2, round(timeout_s)),
            "tcp_user_timeout": _UNANSWERED_MS,
            **_settings(url),
        },
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: psycopg.Connection[Any], _record: object) -> None:
        connection.adapters.register_dumper(str, _Text)
        # For sketches, LZ4 takes a third less CPU time to read than the default, and a quarter less
        # to write. It takes a quarter more space. It requires version 14.
        connection.execute(
            "SELECT set_config(name, 'lz4', false) FROM pg_settings"
            " WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)"
        )
        connection.commit()

    @event.listens_for(engine, "before_cursor_execute")
    def _choose_format(
        _on: object, cursor: Any, _sql: str, _values: object, context: Any, _many: bool
    ) -> None:
        # SQLAlchemy expects text from system tables, so only bulk reads use the binary format.
        if context is not None and context.execution_options.get(IN_BULK):
            cursor.format = Format.BINARY

    return engine


def _settings(url: URL) -> dict[str, str]:
    given = {key: value for key, value in url.query.items() if isinstance(value, str)}
    ours = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    return {**given, "options": f"{ours} {given.get('options', '')}".strip()}


@contextmanager
def exclusively(engine: Engine) -> Iterator[Connection]:
    """Open a transaction with an advisory lock, so that only one process changes the schema."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MS}")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        yield connection


def announce(engine: Engine, oldest: Table, revisions: str, head: str) -> None:
    """Take a shared advisory lock on each connection, and then check the schema's revision.

    An upgrade that this revision cannot use stops if it finds the lock. If such an upgrade has
    already committed, the check of the revision fails.
    """

    @event.listens_for(engine, "connect")
    def _announce(connection: psycopg.Connection[Any], _record: object) -> None:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
            cursor.execute(f"SELECT pg_advisory_lock_shared({_VERSION})", (revisions, head))
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (oldest.name,))
            if cursor.fetchone() == (True,):
                cursor.execute(
                    f"SELECT oldest FROM {oldest.name} WHERE revisions = %s AND oldest > %s",
                    (revisions, head),
                )
                if (needed := cursor.fetchone()) is not None:
                    raise psycopg.OperationalError(
                        f"it was upgraded to a schema that this version ({head}) cannot use;"
                        f" {needed[0]} or newer can use it"
                    )


def exclude(connection: Connection, revisions: str, older: Sequence[str]) -> list[str]:
    """Take the locks of older revisions exclusively. Return the revisions whose lock another
    process holds."""
    free = f"SELECT pg_try_advisory_xact_lock({_VERSION})"
    return [
        version
        for version in older
        if not connection.exec_driver_sql(free, (revisions, version)).scalar_one()
    ]


def prepare(engine: Engine, timeout_s: float) -> None:
    """Do nothing, because the server has its own configuration."""


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """Create all tables."""
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        if BY_DAY in table.info:
            by_day.add_earlier(connection, table)


def inserting(engine: Engine, table: Table) -> Insert:
    """Return a function that adds rows through a temporary table, because COPY has no ON CONFLICT.

    Rows are inserted in the order of the key. In a different order, collectors with the same rows
    could deadlock.
    """
    at = table.columns.keys().index(table.info[BY_DAY]) if BY_DAY in table.info else None
    known: set[Any] = set()
    prepare = engine.dialect.identifier_preparer
    new, columns = f"new_{table.name}", ", ".join(prepare.quote(each.name) for each in table.c)
    key = ", ".join(prepare.quote(each.name) for each in table.primary_key)
    # Copy the defaults, because a newer version may have added columns that this version does not
    # fill.
    like = f"LIKE {table.name} INCLUDING DEFAULTS"
    make = f"CREATE TEMP TABLE IF NOT EXISTS {new} ({like}) ON COMMIT DELETE ROWS"
    copy = f"COPY {new} ({columns}) FROM STDIN"
    move = (
        f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {new} ORDER BY {key}"
        " ON CONFLICT DO NOTHING"
    )

    def add(connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        days = set() if at is None else {cast(int, row[at]) // by_day.DAY_NS for row in rows}
        with driver.cursor() as cursor:
            if not days <= known:
                by_day.add_days(cursor, table, days - known)
                known.update(days)
            cursor.execute(make)
            with cursor.copy(copy) as copying:
                for row in rows:
                    copying.write_row(row)
            try:
                cursor.execute(move)
            except psycopg.errors.CheckViolation as error:
                # The partition of the day was dropped, or the transaction that added it was rolled
                # back. A retry adds the partition.
                known.clear()
                raise psycopg.OperationalError(f"{table.name}: a day is missing") from error

    return add


def read_columns(engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema) -> pa.Table:
    """Read rows through ADBC in the binary format of COPY, over a separate connection."""
    try:
        import adbc_driver_manager
        import adbc_driver_postgresql
    except ImportError as error:
        raise NotQuick("adbc-driver-postgresql is not installed") from error
    url = engine.url
    conninfo = make_conninfo(
        host=url.host,
        port=url.port,
        user=url.username,
        password=url.password,
        dbname=url.database,
        application_name="tailspan",
        **_settings(url),
    )
    answers = []
    try:
        with (
            adbc_driver_postgresql.connect(conninfo) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
        ):
            for question in questions:
                with adbc_driver_manager.AdbcStatement(connection) as statement:
                    statement.set_sql_query(_with_values(engine, question))
                    stream, _ = statement.execute_query()
                    found = pa.RecordBatchReader.from_stream(stream).read_all()
                    answers.append(found.cast(schema))
    except (adbc_driver_manager.Error, pa.ArrowException) as error:
        raise NotQuick(" ".join(str(error).split())[:300]) from error
    return pa.concat_tables(answers)


def _with_values(engine: Engine, question: Select[Any]) -> str:
    compiled = question.compile(engine, compile_kwargs={"render_postcompile": True})
    with engine.connect() as connection:
        driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        return psycopg.ClientCursor(driver).mogrify(str(compiled), compiled.construct_params())


def tasks(engine: Engine) -> Sequence[Task]:
    """Return nothing, because no child process reads."""
    return ()


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add or replace rows."""
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    others = {each.name: each for each in statement.excluded if each.name not in keys}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others), list(rows)
    )


def remove(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Delete rows."""
    return connection.execute(delete(table).where(which)).rowcount


def set_row_lifetime(
    connection: Connection, table: Table, instant: str, keep_ns: int | None
) -> bool:
    """Return False, because PostgreSQL does not delete old rows itself."""
    return False


def drop_days(engine: Engine, table: Table, before_unix_ns: int) -> tuple[int, int] | None:
    """Drop the partitions of days before a time."""
    return by_day.drop_days(engine, table, before_unix_ns) if BY_DAY in table.info else None


def reason(error: BaseException) -> str:
    """The first line of the error. The other lines may contain a row's values."""
    cause = getattr(error, "orig", None) or error
    primary = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    return primary or " ".join(str(cause).split())
