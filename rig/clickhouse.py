"""Run ClickHouse's engine (chdb) in this process, without a server."""

from pathlib import Path

from sqlalchemy import create_engine


class ClickHouses:
    """Creates databases in this process' ClickHouse, one at a time."""

    def __init__(self, path: Path) -> None:
        self._options = f"?interface=chdb&path={path}"
        self._number = 0

    def new(self) -> str:
        """Drop the previous database, and return the URL of an empty one."""
        engine = create_engine(f"clickhousedb://localhost/default{self._options}")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS test_{self._number} SYNC")
            self._number += 1
            connection.exec_driver_sql(f"CREATE DATABASE test_{self._number}")
        engine.dispose()
        return f"clickhousedb://localhost/test_{self._number}{self._options}"
