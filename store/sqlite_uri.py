"""Build the URI with which SQLite opens a file for reading."""

import os
from pathlib import Path
from urllib.parse import quote


def in_writable_folder(path: Path) -> bool:
    """Whether this process may create files beside a database."""
    return os.access(path.parent, os.W_OK)


def read_only_uri(path: Path) -> str:
    """Return the URI that opens a database for reading. Call this for each connection.

    In write-ahead mode, SQLite creates files even for reading. If this process may not create
    files, and there is no `-wal` file, the database is read as `immutable`, without locks. Without
    a `-wal` file, no process uses the database at this moment, but a process of a different user
    may start to write later.
    """
    immutable = not in_writable_folder(path) and not Path(f"{path}-wal").exists()
    return f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if immutable else "")
