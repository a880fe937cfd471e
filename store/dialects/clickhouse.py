"""ClickHouse through clickhouse-connect. Tests run ClickHouse inside their own process (chdb).

ClickHouse has no unique keys. A repeated row is stored twice until parts are merged
(ReplacingMergeTree). The setting `final` removes duplicates from results. ClickHouse has no
transactions, so a failed write may have stored some of the rows. All rows can then be written again
without harm.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    Table,
    create_engine,
    func,
    select,
)
from sqlalchemy.exc import ArgumentError

from store.dialects import clickhouse_tables as tables
from store.dialects.bulk import Insert, arrow_schema
from store.errors import NotQuick
from telemetry.store_errors import StoreError
from telemetry.tasks import Task

DRIVERS: tuple[str, ...] = ("clickhousedb", "clickhousedb+connect")
ADDITIVE: bool = True
SINGLE_WRITER: bool = False
LEASES: bool = False
READERS: int = 1

OPTIONS: Final = ("ca_cert", "cluster", "interface", "path", "secure", "verify")
"""Allowed query parameters of the URL. They are printed, so a password is not allowed."""

_SETTINGS: Final = {
    "final": "1",
    # An aggregate over no rows must be NULL, not 0.
    "aggregate_functions_null_for_empty": "1",
    # An insert is acknowledged only when the shard has stored it.
    "distributed_foreground_insert": "1",
    # Late requests can belong to more days (partitions) than ClickHouse allows by default.
    "throw_on_max_partitions_per_insert_block": "0",
    "mutations_sync": "1",
    # Long queries can contain label values of the maximum length.
    "max_query_size": str(64 * 2**20),
}
_CLUSTER: Final = "tailspan_cluster"
_LONGEST_REASON: Final = 300


def refusal(url: URL) -> str | None:
    """Refuse a URL without a database, or with an unknown option."""
    if not url.database:
        return "the URL has no database name"
    if unknown := sorted(set(url.query) - set(OPTIONS)):
        return f"unknown option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}"
    cluster = url.query.get("cluster", "main")
    if not isinstance(cluster, str) or not cluster.replace("_", "").isalnum():
        return "the cluster's name must consist of letters, digits and _"
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
    # The driver's log lines would repeat Tailspan's error messages.
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
    settings = {f"ch_{key}": value for key, value in _SETTINGS.items()}
    if url.query.get("interface") != "chdb":
        settings["connect_timeout"] = str(max(2, round(timeout_s)))
    try:
        return create_engine(
            url.difference_update_query(["cluster"]).update_query_dict(settings),
            execution_options={_CLUSTER: url.query.get("cluster")},
        )
    except (ArgumentError, ImportError) as error:
        raise StoreError(f"{name(url)}: {error}") from error


@contextmanager
def exclusively(engine: Engine) -> Iterator[Connection]:
    """Open a connection. Adding missing tables is idempotent, so no lock is needed."""
    with engine.connect() as connection:
        yield connection


def announce(engine: Engine, oldest: Table, revisions: str, head: str) -> None:
    """Do nothing, because ClickHouse has no locks."""


def exclude(connection: Connection, revisions: str, older: Sequence[str]) -> list[str]:
    """Return nothing, because ClickHouse cannot report which collectors use it."""
    return []


def prepare(engine: Engine, timeout_s: float) -> None:
    """Do nothing."""


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """Add missing tables and columns.

    In a cluster, other servers may lack tables or columns that this server has, so all statements
    are executed.
    """
    cluster = connection.get_execution_options().get(_CLUSTER)
    present = _codecs(connection)
    for table in metadata.sorted_tables:
        if cluster or table.name not in present:
            for statement in tables.creating(table, cluster):
                connection.exec_driver_sql(statement)
    # An older version may have created a table meanwhile.
    present = _codecs(connection)
    for table in metadata.sorted_tables:
        if cluster or not tables.codecs(table).items() <= present[table.name].items():
            for statement in tables.changing(table, cluster):
                connection.exec_driver_sql(statement)


def _codecs(connection: Connection) -> dict[str, dict[str, str]]:
    """How each column of each table is compressed."""
    found: dict[str, dict[str, str]] = {}
    for table, column, codec in connection.exec_driver_sql(
        "SELECT table, name, compression_codec FROM system.columns"
        " WHERE database = currentDatabase()"
    ):
        found.setdefault(table, {})[column] = codec
    return found


def inserting(engine: Engine, table: Table) -> Insert:
    """Insert rows as Arrow columns."""
    schema = arrow_schema(table)
    key = itemgetter(*(schema.get_field_index(each) for each in tables.order(table)))

    def add(connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        # Keep the first of several rows with the same key. ClickHouse would keep the last.
        first = {key(row): row for row in reversed(rows)}.values()
        columns = list(map(pa.array, zip(*first, strict=True), schema.types))
        for column, about in zip(columns, schema, strict=True):
            if column.null_count and not about.nullable:  # ClickHouse would store 0 for NULL
                raise ValueError(f"{about.name}: a value is required")
        driver: Any = connection.connection.driver_connection
        driver.client.insert_arrow(table.name, pa.table(columns, schema=schema))

    return add


def read_columns(engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema) -> pa.Table:
    """Read rows in Arrow's format."""
    answers = []
    try:
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            for question in questions:
                compiled = question.compile(engine, compile_kwargs={"render_postcompile": True})
                found = driver.client.query_arrow(
                    str(compiled), parameters=compiled.construct_params(), use_strings=True
                )
                answers.append(pa.table(found.columns, names=schema.names).cast(schema))
    except (engine.dialect.loaded_dbapi.Error, pa.ArrowException) as error:
        raise NotQuick(reason(error)) from error
    return pa.concat_tables(answers)


def tasks(engine: Engine) -> Sequence[Task]:
    """Return nothing, because no child process reads."""
    return ()


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows. A later row replaces an earlier row with the same key."""
    inserting(connection.engine, table)(
        connection, [tuple(row[column.name] for column in table.columns) for row in rows]
    )


def remove(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Delete rows. Return their number, which is counted before the deletion."""
    found: int = connection.scalar(select(func.count()).select_from(table).where(which)) or 0
    if found:
        cluster = connection.get_execution_options().get(_CLUSTER)
        condition = which.compile(connection, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"DELETE FROM {tables.local(table, cluster)} WHERE {condition}")
    return found


def set_row_lifetime(
    connection: Connection, table: Table, instant: str, keep_ns: int | None
) -> bool:
    """Set or remove the table's TTL if it has changed. ClickHouse then deletes old rows."""
    cluster = connection.get_execution_options().get(_CLUSTER)
    there = connection.exec_driver_sql(
        "SELECT engine_full FROM system.tables WHERE database = currentDatabase()"
        f" AND name = '{tables.local_name(table, cluster)}'"
    ).scalar()
    known_s = tables.lifetime_s(str(there))
    if keep_ns is None:
        if known_s is not None:
            connection.exec_driver_sql(f"ALTER TABLE {tables.local(table, cluster)} REMOVE TTL")
        return True
    ttl = tables.ttl(instant, keep_ns)
    if ttl not in str(there):
        # Each part on disk stores the time at which its rows expire. If the retention becomes
        # longer, this time must be computed again. Otherwise, ClickHouse deletes the part at the
        # earlier time.
        longer = known_s is not None and known_s < keep_ns // 10**9
        connection.exec_driver_sql(
            f"ALTER TABLE {tables.local(table, cluster)} MODIFY TTL {ttl}"
            f" SETTINGS materialize_ttl_after_modify = {int(longer)}"
        )
    whole = tables.whole_parts(keep_ns)
    if whole not in str(there):
        connection.exec_driver_sql(
            f"ALTER TABLE {tables.local(table, cluster)} MODIFY SETTING {whole}"
        )
    return True


def drop_days(engine: Engine, table: Table, before_unix_ns: int) -> None:
    """Return None, because ClickHouse deletes old rows itself."""


def reason(error: BaseException) -> str:
    """The first line of the server's error, or why the server cannot be reached."""
    cause: BaseException = getattr(error, "orig", None) or error
    if "DB::Exception" not in str(cause):
        cause = _innermost(cause)
    first_line = str(cause).strip().partition("\n")[0]
    return (first_line.rpartition("DB::Exception: ")[2] or type(cause).__name__)[:_LONGEST_REASON]


def _innermost(error: BaseException) -> BaseException:
    inner = error.__cause__ or getattr(error, "reason", None)
    return _innermost(inner) if isinstance(inner, BaseException) else error
