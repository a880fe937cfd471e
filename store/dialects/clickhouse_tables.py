"""The tables as ClickHouse has them: their engines, their order, their place in a cluster.

A table is sorted by the instant that queries filter by, then by its key. Rows with the same
instant and key are one row: a sender that repeats a row repeats its instant, too. A hidden column
holds when the row was written: the latest is kept, or with `KEPT_FIRST` in `info` the earliest.

With a cluster's name there are two of each: `requests_local`, replicated within its shard,
on each server, and `requests`, which spreads over the shards by the first column of the key.
"""

from typing import Final

from sqlalchemy import Column, Table

from store.schema import KEPT_FIRST

_TYPES: Final = {str: "String", int: "Int64", float: "Float64", bool: "Bool", bytes: "String"}
_NOW: Final = "toUInt64(toUnixTimestamp64Nano(now64(9)))"


def order(table: Table) -> list[str]:
    """The columns that a table is sorted by; rows alike in them are one row."""
    names = [*_instants(table), *(column.name for column in table.primary_key)]
    return list(dict.fromkeys(names))


def local_name(table: Table, cluster: str | None) -> str:
    """The table that holds a server's own rows."""
    return f"{table.name}_local" if cluster else table.name


def local(table: Table, cluster: str | None) -> str:
    """The same with its servers, for statements that change it."""
    return local_name(table, cluster) + (f" ON CLUSTER {cluster}" if cluster else "")


def ttl(instant: str, keep_ns: int) -> str:
    """When a row may go, as ClickHouse itself writes it down."""
    return f"toDateTime(fromUnixTimestamp64Nano({instant})) + toIntervalSecond({keep_ns // 10**9})"


def statements(table: Table, cluster: str | None) -> list[str]:
    """What makes a table, and gives one that is there the columns it lacks."""
    columns = [f"`{column.name}` {_type(column)}" for column in table.columns]
    told = f"bitNot({_NOW})" if table.info.get(KEPT_FIRST) else _NOW
    spread = f" ON CLUSTER {cluster}" if cluster else ""
    where, engine = local_name(table, cluster), "ReplacingMergeTree(told)"
    if cluster:
        engine = (
            "ReplicatedReplacingMergeTree("
            f"'/clickhouse/tables/{{shard}}/{{database}}/{where}', '{{replica}}', told)"
        )
    days = "".join(
        f" PARTITION BY toDate(fromUnixTimestamp64Nano(`{instant}`))"
        for instant in _instants(table)
    )
    made = [
        f"CREATE TABLE IF NOT EXISTS {where}{spread}"
        f" ({', '.join(columns)}, told UInt64 MATERIALIZED {told})"
        f" ENGINE = {engine}{days} ORDER BY ({', '.join(f'`{each}`' for each in order(table))})"
        # Acknowledged means kept: by default ClickHouse leaves the flush to the system.
        " SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
    ]
    if cluster:
        # Rows that are one are on one server, whatever instants they bear.
        by = next(each for each in order(table) if each not in _instants(table))
        made.append(
            f"CREATE TABLE IF NOT EXISTS {table.name}{spread} ({', '.join(columns)}) ENGINE ="
            f" Distributed({cluster}, currentDatabase(), {where}, cityHash64(`{by}`))"
        )
    for each in (where, table.name) if cluster else (where,):
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in columns)
        made.append(f"ALTER TABLE {each}{spread} {added}")
    return made


def _instants(table: Table) -> list[str]:
    return [column.name for index in table.indexes for column in index.columns]


def _type(column: Column[object]) -> str:
    plain = _TYPES[column.type.python_type]
    return f"Nullable({plain})" if column.nullable else plain
