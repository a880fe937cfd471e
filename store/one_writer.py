"""Locks a database file, so that only one process writes it.

SQLite would serve a second writer, but each would keep counts, rollups and retention as if it were
alone. The lock is flock(2) on a file beside the database; the kernel releases it when the process
ends, however it ends. It is found by the real path, so a relative path and a symbolic link lead to
the same lock (a hard link does not). Readers take no lock. Several collectors may share PostgreSQL
or ClickHouse.
"""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from store.database import DEFAULT_URL, database_file
from store.errors import StoreError
from store.private_files import FILE_MODE, FOLDER_MODE, tighten

_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of every SQLite database. Source: sqlite.org, Database File Format, 1.3."""
_LONGEST: Final = 4_096
"""Bytes that are read of what the other process wrote about itself."""


@contextmanager
def sole_writer(url: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Be the only process that writes a database, until the end of the `with` block.

    Its files are made private to this user first.

    Args:
        url: a SQLAlchemy URL.
        tell: receives a sentence when a file was open to other users, or cannot be locked.

    Raises:
        StoreError: another process writes it, with its id; or its folder cannot be used.
    """
    file = database_file(url)
    if file is None:
        yield
        return
    real = Path(os.path.realpath(file))
    _check_format(real, file)
    try:
        real.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(
            lock_file(real), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
        )
    except OSError as error:
        raise StoreError(
            f"cannot use the folder of the database {file}: {error.strerror}; name a folder that"
            " this user can write to"
        ) from error
    try:
        _lock(lock, file, tell)
        # The folder only where it is ours: others may keep more than a database in theirs.
        ours = [file.parent] if file == database_file(DEFAULT_URL) else []
        beside = [real.with_name(real.name + end) for end in ("", "-wal", "-shm", "-journal")]
        tighten([*ours, *beside, lock_file(real)], tell)
        yield
    finally:
        os.close(lock)


def _check_format(real: Path, file: Path) -> None:
    """Raise where a file is something other than a database, before anything of it is changed."""
    try:
        with real.open("rb") as opened:
            start = opened.read(len(_SQLITE))
    except OSError:
        return  # there is none yet, or SQLite reports why it cannot be read
    if start not in (b"", _SQLITE):
        raise StoreError(f"{file} is no SQLite database; name another file with --database")


def lock_file(database: Path) -> Path:
    """The file beside a database that its writer locks."""
    return database.with_name(database.name + ".lock")


def _lock(lock: int, file: Path, tell: Callable[[str], None]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(
            f"another process writes the database {file}: {_holder(lock)}. Stop it, or name"
            " another database with --database or TAILSPAN_DATABASE_URL"
        ) from error
    except OSError as error:
        # Some network file systems have no locks.
        tell(
            f"The database {file} cannot be locked ({error.strerror}): make sure that no other"
            " Tailspan writes it."
        )
        return
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        # The verb alone: options may hold what is secret.
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]),
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(about).encode(), 0)


def _holder(lock: int) -> str:
    try:
        about = json.loads(os.pread(lock, _LONGEST, 0))
        words = [f"process {int(about['pid'])}"]
        words += [f"{name} {about[key]}" for name, key in _WORDS if isinstance(about[key], str)]
    except (ValueError, KeyError, TypeError):  # it has only just begun
        return "it has not said which"
    shown = ", ".join(words)
    return "".join(each if each.isprintable() else "\ufffd" for each in shown)


_WORDS: Final = (("command", "command"), ("on", "host"), ("since", "since"))
