"""Run ClickHouse's engine (chdb) in this process, without a server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine

_ADDRESS = "clickhousedb://localhost"


class ClickHouses:
    """Creates databases in this process' ClickHouse."""

    def __init__(self, path: Path) -> None:
        self._options = f"?interface=chdb&path={path}"
        self._number = 0
        self._new: dict[str, list[Any]] = {}
        """What `_contents` returns for a new database, by name."""
        # ClickHouse would stop with its last connection, and starting takes 0.2 s of CPU time.
        self._engine = create_engine(f"{_ADDRESS}/default{self._options}")
        self._connection = self._engine.connect()

    def close(self) -> None:
        """Stop ClickHouse."""
        self._connection.close()
        self._engine.dispose()

    def new(self) -> str:
        """Drop the previous database, and return the URL of an empty one."""
        self._drop(f"test_{self._number}")
        self._number += 1
        return self._create(f"test_{self._number}")

    def shared(self, name: str, create: Callable[[str], None]) -> str:
        """Return the URL of a database with tables, but without rows.

        Creating the tables takes 1 s of CPU time. So the next call with this name returns the same
        database, and deletes the rows. If the tables are not as in a new database, the database is
        created again.

        Args:
            create: creates the tables in the database with a URL.
        """
        self._delete_rows(name)
        if name not in self._new or self._contents(name) != self._new[name]:
            self._drop(name)
            create(self._create(name))
            self._new[name] = self._contents(name)
        return f"{_ADDRESS}/{name}{self._options}"

    def _create(self, name: str) -> str:
        self._execute(f"CREATE DATABASE {name}")
        return f"{_ADDRESS}/{name}{self._options}"

    def _drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name} SYNC")

    def _delete_rows(self, name: str) -> None:
        """Delete all rows, except of the tables that contain rows in a new database."""
        for table, rows, _ in self._tables(name):
            if rows and not table.startswith("tailspan_"):
                self._execute(f"TRUNCATE TABLE {name}.{table} SYNC")

    def _contents(self, name: str) -> list[Any]:
        """The definitions of all tables, their numbers of rows, and the rows of the tables that
        contain rows in a new database."""
        tables = self._tables(name)
        return [
            *tables,
            *(
                self._execute(f"SELECT '{table}', * FROM {name}.{table} FINAL ORDER BY ALL")
                for table, rows, _ in tables
                if rows
            ),
        ]

    def _tables(self, name: str) -> list[Any]:
        return self._execute(
            "SELECT name, total_rows, create_table_query FROM system.tables"
            f" WHERE database = '{name}' ORDER BY name"
        )

    def _execute(self, statement: str) -> list[Any]:
        connection: Connection = self._connection
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []
