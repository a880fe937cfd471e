"""ClickHouse through clickhouse-connect; in tests through chdb, the same engine in-process.

ReplacingMergeTree takes the place of unique keys: a row sent twice is stored twice until parts
are merged, and `final` leaves the second out of each answer. There are no transactions: if a
group of rows fails, some of them may be stored; sending them again changes nothing.
`clickhouse_tables.py` defines the tables.
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
from store.errors import NotQuick, StoreError
from telemetry.tasks import Task

DRIVERS: tuple[str, ...] = ("clickhousedb", "clickhousedb+connect")
ADDITIVE: bool = True
ONE_WRITER: bool = False
READERS: int = 1

OPTIONS: Final = ("ca_cert", "cluster", "interface", "path", "secure", "verify")
"""What may follow the ?; a password may not, because there it would be shown."""

_SETTINGS: Final = {
    "final": "1",
    # The largest of nothing is nothing, not 0.
    "aggregate_functions_null_for_empty": "1",
    # Acknowledged means on the shard, not on the way to it.
    "distributed_foreground_insert": "1",
    # A batch of late requests may reach back over more days than ClickHouse would take.
    "throw_on_max_partitions_per_insert_block": "0",
    "mutations_sync": "1",
    # A question may be about a label as long as the collector lets in.
    "max_query_size": str(64 * 2**20),
}
_CLUSTER: Final = "tailspan_cluster"
_LONGEST_REASON: Final = 300


def refusal(url: URL) -> str | None:
    """A database, and no options but those known not to hold a secret."""
    if not url.database:
        return "the database is not named"
    if unknown := sorted(set(url.query) - set(OPTIONS)):
        return f"{unknown[0]!r} is no option; allowed: {', '.join(OPTIONS)}"
    cluster = url.query.get("cluster", "main")
    if not isinstance(cluster, str) or not cluster.replace("_", "").isalnum():
        return "the cluster's name must consist of letters, digits and _"
    return None


def name(url: URL) -> str:
    """The URL without its password and options."""
    return url.difference_update_query(url.query).render_as_string(hide_password=True)


def folder(url: URL) -> Path:
    """The database is elsewhere, so beside it is here."""
    return Path("var")


def file(url: URL) -> None:
    """A server keeps it."""


def connect(url: URL, *, create: bool, timeout_s: float) -> Engine:
    """Makes nothing: that is done where the database is."""
    # Its log would repeat, at length, what our errors report.
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
    """Not needed: to add what is missing twice is to add it once."""
    with engine.connect() as connection:
        yield connection


def settle(engine: Engine, timeout_s: float) -> None:
    """Nothing to do."""


def grow(connection: Connection, metadata: MetaData) -> None:
    """Tables and columns that are not there yet; nothing is ever taken away."""
    cluster = connection.get_execution_options().get(_CLUSTER)
    for table in metadata.sorted_tables:
        for statement in tables.statements(table, cluster):
            connection.exec_driver_sql(statement)


def inserting(engine: Engine, table: Table) -> Insert:
    """As Arrow, which is columns as ClickHouse has them."""
    schema = arrow_schema(table)
    key = itemgetter(*(schema.get_field_index(each) for each in tables.order(table)))

    def add(connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        # ClickHouse would keep the later of two rows with one key in a block.
        first = {key(row): row for row in reversed(rows)}.values()
        columns = list(map(pa.array, zip(*first, strict=True), schema.types))
        for column, about in zip(columns, schema, strict=True):
            if column.null_count and not about.nullable:  # it would become 0 without a word
                raise ValueError(f"{about.name}: a value is needed")
        driver: Any = connection.connection.driver_connection
        driver.client.insert_arrow(table.name, pa.table(columns, schema=schema))

    return add


def read_columns(engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema) -> pa.Table:
    """In Arrow's format, which ClickHouse supports natively."""
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
    """None."""
    return ()


def put(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """A later row replaces the earlier with its key."""
    inserting(connection.engine, table)(
        connection, [tuple(row[column.name] for column in table.columns) for row in rows]
    )


def remove(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Counted beforehand: ClickHouse does not report how many rows it deletes."""
    found: int = connection.scalar(select(func.count()).select_from(table).where(which)) or 0
    if found:
        cluster = connection.get_execution_options().get(_CLUSTER)
        condition = which.compile(connection, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"DELETE FROM {tables.local(table, cluster)} WHERE {condition}")
    return found


def forgets(connection: Connection, table: Table, instant: str, keep_ns: int) -> bool:
    """A TTL, set where it is another: ClickHouse drops old rows as it merges."""
    cluster = connection.get_execution_options().get(_CLUSTER)
    there = connection.exec_driver_sql(
        "SELECT engine_full FROM system.tables WHERE database = currentDatabase()"
        f" AND name = '{tables.local_name(table, cluster)}'"
    ).scalar()
    ttl = tables.ttl(instant, keep_ns)
    if ttl not in str(there):
        connection.exec_driver_sql(
            f"ALTER TABLE {tables.local(table, cluster)} MODIFY TTL {ttl}"
            " SETTINGS materialize_ttl_after_modify = 0"
        )
    return True


def reason(error: BaseException) -> str:
    """The server's first line, or why there is no server; no more of it than a sentence."""
    cause: BaseException = getattr(error, "orig", None) or error
    if "DB::Exception" not in str(cause):
        cause = _innermost(cause)
    said = str(cause).strip().partition("\n")[0]
    return (said.rpartition("DB::Exception: ")[2] or type(cause).__name__)[:_LONGEST_REASON]


def _innermost(error: BaseException) -> BaseException:
    """clickhouse-connect wraps the error of urllib3, which wraps that of the socket."""
    inner = error.__cause__ or getattr(error, "reason", None)
    return _innermost(inner) if isinstance(inner, BaseException) else error
