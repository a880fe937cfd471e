"""Define the tables in ClickHouse: the table engine, sort order, and distribution in a cluster.

A table is sorted by the time column that queries filter by, then by its key. If several rows have
the same time and key, only the row with the highest `row_version` is kept. This is the last row, or
the first row if `info` contains `KEEP_FIRST`. In a cluster, `requests_local` stores one server's
rows, replicated within its shard. `requests` is distributed over the shards.
"""

import re
from typing import Final

from sqlalchemy import Column, Table

from store.schema import KEEP_FIRST

_TYPES: Final = {str: "String", int: "Int64", float: "Float64", bool: "Bool", bytes: "String"}
_WEEK_NS: Final = 7 * 86_400 * 10**9
_LIFETIME: Final = re.compile(r"TTL .* \+ toIntervalSecond\((\d+)\)")
_NOW: Final = "toUInt64(toUnixTimestamp64Nano(now64(9)))"


def order(table: Table) -> list[str]:
    """The sort columns. Rows with equal values in these columns count as one row."""
    names = [*_instants(table), *(column.name for column in table.primary_key)]
    return list(dict.fromkeys(names))


def local_name(table: Table, cluster: str | None) -> str:
    """The name of the local table, which stores one server's rows."""
    return f"{table.name}_local" if cluster else table.name


def local(table: Table, cluster: str | None) -> str:
    """The local table's name, with ON CLUSTER in a cluster, for DDL statements."""
    return local_name(table, cluster) + (f" ON CLUSTER {cluster}" if cluster else "")


def ttl(instant: str, keep_ns: int) -> str:
    """The TTL expression of a table, in the form in which ClickHouse shows it."""
    return f"toDateTime(fromUnixTimestamp64Nano({instant})) + toIntervalSecond({keep_ns // 10**9})"


def lifetime_s(engine_full: str) -> int | None:
    """The retention in the TTL of a table's definition, in seconds. None without a TTL."""
    found = _LIFETIME.search(engine_full)
    return None if found is None else int(found[1])


def whole_parts(keep_ns: int) -> str:
    """The setting that makes ClickHouse delete only whole parts (days).

    Without it, ClickHouse rewrites the oldest day each time rows expire. With it, rows are kept for
    up to a day longer.
    """
    return f"ttl_only_drop_parts = {int(keep_ns >= _WEEK_NS)}"


def codecs(table: Table) -> dict[str, str]:
    """How each column is compressed, in the form in which ClickHouse shows it. ZSTD needs a quarter
    less disk space than ClickHouse's default (decision 097)."""
    instants = _instants(table)
    return {
        column.name: f"CODEC({'Delta(8), ' if column.name in instants else ''}ZSTD(1))"
        for column in table.columns
    }


def creating(table: Table, cluster: str | None) -> list[str]:
    """The statements that create a table."""
    columns, stored = _columns(table), _stored_columns(table)
    row_version = f"bitNot({_NOW})" if table.info.get(KEEP_FIRST) else _NOW
    spread = f" ON CLUSTER {cluster}" if cluster else ""
    where, engine = local_name(table, cluster), "ReplacingMergeTree(row_version)"
    if cluster:
        engine = (
            "ReplicatedReplacingMergeTree("
            f"'/clickhouse/tables/{{shard}}/{{database}}/{where}', '{{replica}}', row_version)"
        )
    days = "".join(
        f" PARTITION BY toDate(fromUnixTimestamp64Nano(`{instant}`))"
        for instant in _instants(table)
    )
    made = [
        f"CREATE TABLE IF NOT EXISTS {where}{spread}"
        f" ({', '.join(stored)}, row_version UInt64 MATERIALIZED {row_version})"
        f" ENGINE = {engine}{days} ORDER BY ({', '.join(f'`{each}`' for each in order(table))})"
        # ClickHouse does not call fsync by default, but an acknowledged row must be on disk.
        " SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
    ]
    if cluster:
        # Rows with the same key must be on the same shard.
        by = next(each for each in order(table) if each not in _instants(table))
        made.append(
            f"CREATE TABLE IF NOT EXISTS {table.name}{spread} ({', '.join(columns)}) ENGINE ="
            f" Distributed({cluster}, currentDatabase(), {where}, cityHash64(`{by}`))"
        )
    return made


def changing(table: Table, cluster: str | None) -> list[str]:
    """The statements that add missing columns to a table of an older version, and set how its new
    and merged parts are compressed."""
    spread = f" ON CLUSTER {cluster}" if cluster else ""
    where = local_name(table, cluster)
    added = [(where, _stored_columns(table))]
    if cluster:
        added.append((table.name, _columns(table)))
    made = []
    for each, columns in added:
        more = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in columns)
        made.append(f"ALTER TABLE {each}{spread} {more}")
    modified = ", ".join(f"MODIFY COLUMN `{name}` {codec}" for name, codec in codecs(table).items())
    made.append(f"ALTER TABLE {where}{spread} {modified}")
    return made


def _columns(table: Table) -> list[str]:
    return [f"`{column.name}` {_type(column)}" for column in table.columns]


def _stored_columns(table: Table) -> list[str]:
    return [
        f"{each} {codec}"
        for each, codec in zip(_columns(table), codecs(table).values(), strict=True)
    ]


def _instants(table: Table) -> list[str]:
    return [column.name for index in table.indexes for column in index.columns]


def _type(column: Column[object]) -> str:
    plain = _TYPES[column.type.python_type]
    return f"Nullable({plain})" if column.nullable else plain
